"""Generator of records, routes, calls and docs; not in the wheel."""
