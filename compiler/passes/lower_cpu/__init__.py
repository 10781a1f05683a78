"""Passes that carry out a schedule and lower a dispatch for CPUs."""
