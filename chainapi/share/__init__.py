"""One gate for many processes: the host, its members, and the carriers between them."""
