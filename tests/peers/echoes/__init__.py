"""What the stacks below a service can do at all: bare echoes of 1 KiB, without protobuf.

A server and a client of each stack that carries gRPC with its trailers; beside them an echo over
plain TCP, which is what the loop and the system leave room for.
"""
