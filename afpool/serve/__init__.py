"""The runtime as a service: one MCP endpoint, at which everybody gets exactly their own tools."""
