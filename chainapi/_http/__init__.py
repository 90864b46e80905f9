"""One request: HTTP messages, attempts and retries, caches, and the transport."""
