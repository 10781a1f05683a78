"""Passes that put a schedule on every dispatch."""
