"""Figures that the product promises, each with the raw probe it is compared to.

`python -m tests.benchmarks [CASE ...] [--json FILE] [--scale 0.1]`. A probe runs in turn with what
it is compared to, in the same process or against the same server, so that a busy machine slows
both. Of several rounds the median counts.
"""
