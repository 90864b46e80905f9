"""chainapi inside web frameworks: `fastapi`, `starlette`, and parts for others."""
