"""Paging under stress: a nasty service, a machine that reads it, mutants, kill -9."""
