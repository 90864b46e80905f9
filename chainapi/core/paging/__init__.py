"""Walks over pages: position, checkpoint, deduplication; pure."""
