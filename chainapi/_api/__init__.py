"""Routes of both services as data, and their binding to typed methods."""
