"""Streams to files: JSON lines, CSV, Parquet, SQLite and DuckDB."""
