"""When a request may leave: limits as responses announce them and people see them."""
