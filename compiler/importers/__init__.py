"""Front ends: each turns a model into a module of linalg on tensors with weights as arguments."""
