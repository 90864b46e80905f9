"""Rate limits: when a request may leave. All of it is pure but for `gate`."""
