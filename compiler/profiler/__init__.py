"""The kernel profiler of `opt="O1"`: candidates compiled and measured in processes of their own, decisions kept."""
