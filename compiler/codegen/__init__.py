"""From one dispatch to machine code: pipelines for CPUs, NVIDIA and AMD GPUs, and the emulator of GPUs."""
