"""TLS and signed calls: the files of the one, the headers of the other.

| header           | value                                                                    |
|------------------|--------------------------------------------------------------------------|
| `x-mq-date-time` | the time in UTC, `20240131T235959Z`                                      |
| `authorization`  | `MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=…` |

The signature is the HMAC-SHA1 of the first header's value under the secret, in hex: the scheme of
RocketMQ 5's clients. It covers neither the request nor the answer; TLS does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"
ALGORITHM = "MQv2-HMAC-SHA1"
#: What may stand in a header between the signs that divide it.
ACCESS_KEY_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


@dataclass(frozen=True, kw_only=True)
class TLS:
    """Encrypt, and verify the server. Files are PEM, and are read again when they change.

    `ca`: who signs the server's certificate; None: the system's authorities. `cert` and `key`: of
    this client, where the server asks for one. `server_name`: the name in the server's certificate
    where it is not the host of the target. Raises ValueError.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("tls: cert and key belong together: give both, or neither")

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that are given."""
        return tuple(Path(each) for each in (self.ca, self.cert, self.key) if each is not None)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """From the files as they are now. Raises OSError."""
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def check_files(self) -> None:
        """Raises OSError when one is missing or cut short, or the key is not the certificate's:
        what gRPC would say of that is that the server is away."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_ciphers("DEFAULT@SECLEVEL=0")  # how strong they have to be is for gRPC to say
        if self.ca is not None:
            context.load_verify_locations(self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key, password="")


@dataclass(frozen=True)
class Credentials:
    """A user of the server: what every call is signed with. Raises ValueError."""

    access_key: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.access_key, str) and ACCESS_KEY_FORM.fullmatch(self.access_key)):
            raise ValueError(
                f"access_key: {self.access_key!r} is not 1 to 128 letters, digits, or . _ @ -"
            )
        if not (isinstance(self.secret, str) and self.secret):
            raise ValueError("secret: is empty")


def signature_of(secret: str, date_time: str) -> str:
    """In lower-case hex."""
    return hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()


def stamps_of(files: Iterable[Path]) -> tuple[object, ...]:
    """Equal while none of the files was changed or replaced. Missing ones have a stamp too."""
    stamps: list[object] = []
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            stamps.append(error.errno)
        else:
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(stamps)


class Signer:
    """The headers of a call that begins now. Owned by one event loop."""

    def __init__(self, credentials: Credentials, now_s: Callable[[], float] = time) -> None:
        self._credentials = credentials
        self._now_s = now_s
        self._second = -1
        self._headers: tuple[tuple[str, str], ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The same for all calls of a second."""
        second = int(self._now_s())
        if second != self._second:
            date_time = datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")
            signature = signature_of(self._credentials.secret, date_time)
            self._headers = (
                (DATE_TIME, date_time),
                (
                    AUTHORIZATION,
                    f"{ALGORITHM} Credential={self._credentials.access_key}, "
                    f"SignedHeaders={DATE_TIME}, Signature={signature}",
                ),
            )
            self._second = second
        return self._headers


def _read(file: str | Path | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
