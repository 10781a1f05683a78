"""Passes on the imported graph: clean-ups, fusion of patterns, precision, checks."""
