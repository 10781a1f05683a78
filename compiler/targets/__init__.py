"""The machines that code is generated for: presets with their sources, files, this host, and measuring it."""
