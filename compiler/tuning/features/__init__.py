"""What learned cost models see of candidates: columns with names and units, for many candidates at once, from nouns alone."""
