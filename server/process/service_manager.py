"""Notifies systemd, or another service manager: sd_notify, over a datagram socket.

NOTIFY_SOCKET names the socket: a path, or with `@` an abstract Linux name. WATCHDOG_USEC is how
long it waits for a sign of life of the process WATCHDOG_PID. Source: sd_notify(3).
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)


class ServiceManager:
    """Sends notifications to the service manager. Thread: any. Never blocks or fails the server."""

    def __init__(self, address: str, watchdog_s: float | None) -> None:
        #: Without a notification for this long, the service manager kills the process. None: it
        #: does not watch.
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._failed = False

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager | None:
        """The service manager of this process; None if it expects no notifications."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return None
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = meant and watchdog_us.isdecimal() and int(watchdog_us) > 0
        return cls(address, int(watchdog_us) / 1e6 if watched else None)

    def tell(self, *lines: str) -> None:
        """Send lines such as READY=1, together."""
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
                telling.settimeout(0)
                telling.sendto(text.encode(errors="backslashreplace"), self._address)
            self._failed = False
        except OSError as error:
            if not self._failed:
                logger.warning("cannot tell the service manager %s: %s", lines[-1], error)
            self._failed = True
