"""The `torch.compile` backend: from captured graphs to compiled parts and operators left to eager PyTorch."""
