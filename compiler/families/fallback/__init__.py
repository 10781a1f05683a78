"""The GPU kernel that takes any dispatch: one operation after the other, by the threads of one block."""
