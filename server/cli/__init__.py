"""The command line."""

import os

from server.cli.streams import open_standard_streams

open_standard_streams()

# Before anything imports grpc, which reads it then: what goes wrong is told in our own words, and
# a line of gRPC's log before them ("add_port.cc: Failed to bind") helps nobody.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
