"""The compiler: phases, passes, importers and drivers; nothing in here is needed to run an artifact."""
