"""Speed and memory as ratios against hand-written code, measured side by side: `python -m tests.bench`."""
