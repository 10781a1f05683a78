"""What the compiler speaks of: workloads, schedules, layouts, records; frozen data without any MLIR in it."""
