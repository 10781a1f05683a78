"""Benchmarks: the models and operators the papers use, and a harness that times us beside other compilers."""
