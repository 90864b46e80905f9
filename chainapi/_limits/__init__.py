"""Rate limits: when may a request leave."""
