"""The same runtime for asyncio and for threads: trio runs in a thread of its own."""
