"""Searches: which candidates of a dispatch are measured next, and when to stop."""
