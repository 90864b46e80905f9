"""Generator of records, routes, calls and docs from OpenAPI documents; not in the wheel."""
