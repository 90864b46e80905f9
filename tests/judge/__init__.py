"""Judge: random programs, whose results two versions of the package must have in common."""
