"""Asyncio shells of the core: transport, gate, calls, pages."""
