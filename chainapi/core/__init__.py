"""The rules of chainapi, pure: no asyncio, no aiohttp, no clock, no random, no logging; time is an argument."""
