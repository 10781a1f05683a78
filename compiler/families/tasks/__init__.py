"""Dispatches as tasks of a search."""
