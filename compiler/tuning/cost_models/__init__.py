"""Cost models: from features of candidates to how fast they should be, learned from measurements or not at all."""
