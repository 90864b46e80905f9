"""Quotas: policies of a service, their discovery, and the requests they allow; pure."""
