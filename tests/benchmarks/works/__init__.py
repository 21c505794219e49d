"""What is measured: each file is found by itself, see `tests.benchmarks.work`."""
