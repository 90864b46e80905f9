"""The rules of chainapi, pure: no asyncio, aiohttp, clock, random or logging; time is an argument."""
