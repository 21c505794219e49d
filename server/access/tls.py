"""TLS from PEM files, reloaded when they change.

gRPC asks at each handshake which certificate to present; open connections keep theirs. An
incomplete change (a new certificate without its key) or an invalid one is logged, and the previous
files stay in use until it is valid.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kvcq_client.transport import stamps_of
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

#: Files that are wrong are complained of this often.
_COMPLAIN_EVERY_S = 60.0
_SPKI = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


class TlsFiles(NamedTuple):
    """The settings `tls_cert`, `tls_key` and `tls_ca`. With a CA, clients must present a
    certificate that it signed."""

    cert: Path
    key: Path
    ca: Path | None = None

    @property
    def present(self) -> tuple[Path, ...]:
        return (self.cert, self.key) if self.ca is None else (self.cert, self.key, self.ca)


class Loaded(NamedTuple):
    """Loaded files that match each other."""

    configuration: grpc.ServerCertificateConfiguration
    expires: datetime
    #: The key, the certificate with what signed it, and the CA of clients.
    pem: tuple[bytes, bytes, bytes | None]


def load(files: TlsFiles) -> Loaded:
    """The files as they are now. Raises InvalidArgumentError, naming the setting."""
    chain = _read("server.tls_cert", files.cert)
    key = _read("server.tls_key", files.key)
    ca = None if files.ca is None else _read("server.tls_ca", files.ca)
    leaf = _certificates("server.tls_cert", files.cert, chain)[0]
    if ca is not None and files.ca is not None:
        _certificates("server.tls_ca", files.ca, ca)
    try:
        private = serialization.load_pem_private_key(key, None)
    except TypeError:
        raise InvalidArgumentError(
            "server.tls_key",
            f"{files.key} is encrypted: `openssl pkey -in {files.key} -out FILE` writes it without "
            "a password",
        ) from None
    except ValueError:
        raise InvalidArgumentError(
            "server.tls_key", f"{files.key} is not a private key in PEM"
        ) from None
    if private.public_key().public_bytes(*_SPKI) != leaf.public_key().public_bytes(*_SPKI):
        raise InvalidArgumentError(
            "server.tls_key", f"{files.key} does not belong to the certificate in {files.cert}"
        )
    configuration = grpc.ssl_server_certificate_configuration([(key, chain)], ca)
    return Loaded(configuration, leaf.not_valid_after_utc, (key, chain, ca))


class ReloadedTls:
    """The TLS configuration of a port.

    Thread: `fetch` on threads of gRPC, one at each handshake. Locks: `_loading`.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Raises InvalidArgumentError, naming the setting."""
        self._files = files
        self._stamps = stamps_of(files.present)
        self._loaded = load(files)
        self._loading = threading.Lock()
        self._complain_s = monotonic()
        self.credentials = grpc.dynamic_ssl_server_credentials(
            self._loaded.configuration,
            self.fetch,  # type: ignore[arg-type] # the stubs do not say that it may give None
            files.ca is not None,
        )
        if self._loaded.expires <= datetime.now(UTC):
            logger.warning("%s expired at %s: clients reject it", files.cert, self._loaded.expires)

    @property
    def expires(self) -> datetime:
        """Expiry time of the current certificate."""
        return self._loaded.expires

    @property
    def pem(self) -> tuple[bytes, bytes, bytes | None]:
        """Current key, certificate and CA; a new tuple after each reload."""
        return self._loaded.pem

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The files if they have changed; None to continue with the current ones."""
        stamps = stamps_of(self._files.present)
        with self._loading:
            if stamps == self._stamps:
                return None
            try:
                self._loaded = load(self._files)
            except InvalidArgumentError as error:
                if monotonic() >= self._complain_s:
                    self._complain_s = monotonic() + _COMPLAIN_EVERY_S
                    logger.error(
                        "cannot load the new certificate, the old one stays in use: %s", error
                    )
                return None
            self._stamps = stamps
            logger.info("reloaded %s, which expires at %s", self._files.cert, self._loaded.expires)
            return self._loaded.configuration


def _read(field: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(
            field, f"{file} cannot be read: {error.strerror or error}"
        ) from error


def _certificates(field: str, file: Path, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise InvalidArgumentError(field, f"{file} is not a certificate in PEM") from None
