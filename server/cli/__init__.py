"""The command line."""

import os

from server.cli.streams import open_standard_streams

open_standard_streams()

# Before anything imports grpc, which reads it then. We report errors in our own words, and a line
# of gRPC's log before them ("add_port.cc: Failed to bind") would not help.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
