"""Rules of chainapi, pure: no I/O, clock or random numbers.

No module imports asyncio, aiohttp or logging; time is an argument.
"""
