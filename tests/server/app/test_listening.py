"""server/app/listening.py: what gRPC is told."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from kvcq_client.transport.connection import _OPTIONS
from server.app.listening import rpc_options
from server.config import ServerConfig


def test_grpc_knows_every_option_that_it_is_given(tmp_path: Path) -> None:
    """It leaves out the others without a word, such as one whose name is that of its constant."""
    library = import_module("grpc._cython.cygrpc").__file__
    assert library is not None
    names = Path(library).read_bytes()
    given = [*rpc_options(ServerConfig(data_dir=tmp_path)), *_OPTIONS]
    assert [name for name, _ in given if name.encode() + b"\0" not in names] == []
