"""`make bench-peers`: the service beside other systems on one machine, in turns, with the spread.

Each system is a pair of classes in a file of `systems/`: its server, as processes that are started
and stopped here, and its client, which runs in a process of its own. What is not installed is left
out, with a line that says how to install it. Among them are the limits: the stack with nothing
behind it, the writing of a store with no stack before it, and one over the other. `goals` says
which of them leaves no room for what was wanted. Nothing of the product imports from here.
"""
