"""`make bench` and `make bench-peers`: rates in turns, each beside its raw probe in the same run.

A *system* is a server, which is started and stopped here, and a client in a process of its own:
ours, ours with other settings, the limits (the same bytes with nothing around them) and the peers
of `tests/peers`. A *work* is what a client does, with a loop for each system that can do it, and
its goals: a file of `works/`, which needs no other change. Rounds, report and goals are those of
`kvcq_bench`.

The loops that drive the load are not. `kvcq_bench.load` makes every body anew and checks it, to
find what a store lost. That takes the client about half as long as a put in a batch takes in all:
here it would slow down the fast systems most. It also drives threads that share one kind of writer,
but a peer is as fast as its own client's pipelines, tasks or batches.
"""
