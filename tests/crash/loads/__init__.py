"""Loads that a store is killed under, and what must hold afterwards: `make soak-kills`.

`load` says what a load is. Each is a module: `groups` shares work, `ordered` does it in order,
`waiting` has timers, transactions and lite topics in one store, while segments go. `killing` runs
one in a process that kills itself at a point chosen before, and judges what is left of the store;
for a loss of power after it has taken from it what was not flushed. `__main__` is that process.
"""
