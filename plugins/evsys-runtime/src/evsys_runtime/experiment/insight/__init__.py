"""Insight from recorded experiments: those near a config, the summary for an agent, reasons of outcomes and next
steps.
"""
