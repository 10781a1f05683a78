"""Which family writes the GPU kernel of a dispatch, and the candidate schedules of its kernel."""
