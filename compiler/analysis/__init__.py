"""Reading IR: structure, accesses, element expressions, where tensors lie; nothing in here changes a module."""
