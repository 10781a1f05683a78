"""Pipelines of passes: their syntax, the registry of our passes, diagnostics and reproducers."""
