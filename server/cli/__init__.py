"""The command line."""

import os

from server.cli.streams import open_standard_streams

open_standard_streams()

# gRPC reads this when it is imported. Its log lines ("add_port.cc: Failed to bind") would only
# repeat errors that the commands report themselves.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
