"""Version of chainapi."""

__version__ = "0.1.0"
