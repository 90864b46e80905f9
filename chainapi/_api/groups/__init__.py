"""Routes of both services as methods, in groups by topic."""
