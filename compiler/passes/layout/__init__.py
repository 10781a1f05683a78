"""Passes that decide and apply layouts: assigned, propagated, packed, padded; weights hoisted."""
