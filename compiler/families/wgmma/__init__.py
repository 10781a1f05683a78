"""GPU kernels of contractions on Hopper's warpgroups, fed by TMA."""
