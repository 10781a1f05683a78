"""What is kept on disk between compilations: kernels, imported modules and whole packages."""
