"""Benchmarks against hand-written code, side by side: `python -m tests.bench`.

Speed and memory are measured as ratios.
"""
