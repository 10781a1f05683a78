"""The commands `tilewright` and `tilewright-opt`."""
