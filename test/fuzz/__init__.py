"""Random PyTorch programs, run through every path of the compiler and compared with eager PyTorch."""
