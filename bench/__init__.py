"""Benchmarks: each prints a table with the machine and a limit measured in the same run."""
