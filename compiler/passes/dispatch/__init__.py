"""Passes that cut a program into dispatches and decide where their tensors lie and in which order they run."""
