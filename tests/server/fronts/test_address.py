"""server/fronts/address.py: what is held is for our fronts alone."""

from __future__ import annotations

import errno
import socket

import pytest

from server.errors import ServerBindError
from server.fronts.address import HeldAddress


def _listening(port: int, *options: int) -> socket.socket:
    one = socket.socket()
    try:
        for option in options:
            one.setsockopt(socket.SOL_SOCKET, option, 1)
        one.bind(("127.0.0.1", port))
        one.listen()
    except BaseException:
        one.close()
        raise
    return one


@pytest.fixture(params=["a free port", "a port that was asked for"])
def port(request: pytest.FixtureRequest) -> int:
    if request.param == "a free port":
        return 0
    with _listening(0) as found:
        port: int = found.getsockname()[1]
        return port


def test_fronts_share_it_and_take_its_connections(port: int) -> None:
    held = HeldAddress("127.0.0.1", port)
    assert port in (0, held.port)
    reuse = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    with _listening(held.port, *reuse) as one, _listening(held.port, *reuse) as other:
        for sharing in (one, other):
            sharing.settimeout(0.05)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", held.port)):
                accepted = []
                for sharing in (one, other):
                    try:
                        accepted.append(sharing.accept()[0])
                    except TimeoutError:
                        continue
                assert len(accepted) == 1, "one of them, and not who holds it"
                accepted[0].close()
    held.close()


@pytest.mark.parametrize("with_fronts", [False, True])
def test_no_other_server_gets_it(port: int, with_fronts: bool) -> None:
    held = HeldAddress("127.0.0.1", port)
    sharing = []
    if with_fronts:
        sharing.append(_listening(held.port, socket.SO_REUSEADDR, socket.SO_REUSEPORT))
    with pytest.raises(OSError, match="in use"):
        _listening(held.port, socket.SO_REUSEADDR)  # as gRPC does without so_reuseport
    with pytest.raises(ServerBindError, match="in use"):
        HeldAddress("127.0.0.1", held.port)
    with pytest.raises(ServerBindError, match="in use"):
        HeldAddress("localhost", held.port)
    for one in sharing:
        one.close()
    held.close()
    HeldAddress("127.0.0.1", held.port).close()


@pytest.mark.parametrize("options", [(), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)])
def test_what_another_server_has_is_refused(options: tuple[int, ...]) -> None:
    with _listening(0, *options) as other:
        with pytest.raises(ServerBindError) as refused:
            HeldAddress("127.0.0.1", other.getsockname()[1])
        assert refused.value.reason.errno == errno.EADDRINUSE


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(ServerBindError) as refused:
        HeldAddress("192.0.2.1", 0)
    assert refused.value.reason.errno == errno.EADDRNOTAVAIL


def test_the_port_of_connections_that_still_close_is_had() -> None:
    with _listening(0, socket.SO_REUSEADDR) as former:
        port = former.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = former.accept()
        accepted.close()  # the server's side first: it is the one that waits
        client.recv(1)
        client.close()
    HeldAddress("127.0.0.1", port).close()
