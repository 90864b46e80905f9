"""One list: its pages, its rows and the position of a reader."""
