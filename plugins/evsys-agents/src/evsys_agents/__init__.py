"""The plugin of evsys for coding agents: its folder, how hosts get it, and the gates that its hooks ask.

`hook` answers a host before and after each tool call, so it and what it imports (`calls`, `gates`, `vetoes`, `briefing`) use the
standard library alone. `knowledge` computes what they read; `command` is `evsys agent`.
"""
