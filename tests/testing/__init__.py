"""Tests of the fixtures, assertions and recordings for applications."""
