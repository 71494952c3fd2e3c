"""An MCP server over the tools of a project."""
