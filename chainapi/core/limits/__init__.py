"""Quotas: policies of a service, their discovery, requests they allow; pure."""
