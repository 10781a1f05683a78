"""Worker processes that lower code: what LLVM and MLIR do to them ends no process of the user's.

One template process per user's process has the bindings loaded and forks workers off itself ([`template`](template.py)),
the pool hands them jobs ([`pool`](pool.py)), and what they do is in [`tasks`](tasks.py).
"""
