"""Proposers: which schedules of a space to try first, each under a name, without measuring anything."""
