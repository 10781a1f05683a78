"""What passes write kernels with: loop nests, register tiles and vector code for the shapes of reductions there are."""
