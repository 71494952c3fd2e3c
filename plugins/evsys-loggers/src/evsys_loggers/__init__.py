"""Callbacks that log runs to TensorBoard, Weights & Biases, MLflow and trackio, alongside the record."""
