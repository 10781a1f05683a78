"""The device suite: on a machine with an NVIDIA GPU, checks every kind of kernel and times them beside PyTorch's."""
