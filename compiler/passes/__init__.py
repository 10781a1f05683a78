"""Passes, one per file: rewrites of the graph, of layouts, of dispatches, of schedules, and lowerings."""
