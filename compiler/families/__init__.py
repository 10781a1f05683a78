"""Families of kernels: what computes a dispatch as its schedule says, or says why it does not."""
