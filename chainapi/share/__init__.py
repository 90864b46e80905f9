"""One gate for many processes: its host, its participants, and carriers."""
