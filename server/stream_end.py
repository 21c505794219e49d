"""What reading a gRPC stream gives once there is no more."""

from __future__ import annotations

import grpc

EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out
