"""Quotas: the policies of a service, their discovery, and what they allow now; pure."""
