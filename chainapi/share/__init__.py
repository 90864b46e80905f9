"""One gate for many processes: its host, the members, and carriers between them."""
