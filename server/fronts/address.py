"""Holds the address that fronts share, so that no other process gets it.

Sockets with SO_REUSEPORT share a port, and the kernel hands each connection to one of them. Two
servers of one user would silently share it as well. So the owner first binds the address alone, as
a server without fronts does, and then holds it with sockets that do not listen: with SO_REUSEPORT
for its fronts, and without SO_REUSEADDR, so that every other server is rejected. Linux's rules:
inet_bind_conflict in net/ipv4/inet_connection_sock.c.
"""

from __future__ import annotations

import errno
import socket

from server.errors import ServerBindError


class HeldAddress:
    """Holds it until `close`, or until the process ends."""

    def __init__(self, host: str, port: int) -> None:
        """Port 0: any free one. Raises ServerBindError."""
        self.port = port
        self._sockets: list[socket.socket] = []
        absent: OSError | None = None
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                try:
                    self._hold(socket.socket(family, kind, protocol), address)
                except OSError as error:
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    absent = error  # a name may stand for addresses that this machine has not
            if not self._sockets and absent is not None:
                raise absent
        except OSError as error:
            self.close()
            raise ServerBindError(host, port, error) from error

    def close(self) -> None:
        """Release the address. Repeatable."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    def _hold(self, one: socket.socket, address: tuple[str, int] | tuple[object, ...]) -> None:
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after a restart
            one.bind((address[0], self.port, *address[2:]))
            if self.port:
                # Only a listening socket has the port exclusively; a bound one may share it. A free
                # port that the kernel chose is exclusive anyway, and the shutdown would release it.
                one.listen(1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            if self.port:
                one.shutdown(socket.SHUT_RDWR)
        except OSError:
            one.close()
            raise
        self.port = one.getsockname()[1]
        self._sockets.append(one)
