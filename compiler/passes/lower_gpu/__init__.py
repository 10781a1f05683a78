"""Passes that lower a dispatch for GPUs and for their emulator."""
