"""Deciding schedules: heuristics and searches over workloads, never touching IR."""
