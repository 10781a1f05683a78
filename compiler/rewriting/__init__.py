"""Building blocks of rewrites: layout rules, reshapes, generics and elementary functions written as IR."""
