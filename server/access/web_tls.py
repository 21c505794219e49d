"""TLS for the HTTP ports, from the same files as gRPC's."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from kvcq_client.transport import stamps_of
from server.access.tls import load
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from server.access.tls import TlsFiles

logger = logging.getLogger(__name__)


def http_tls(files: TlsFiles) -> ssl.SSLContext:
    """The SSL context of an aiohttp site. Changed files are loaded at the next handshake.

    With a CA, browsers must present a certificate that it signed. Raises InvalidArgumentError,
    naming the setting.
    """
    stamps = stamps_of(files.present)
    current = context = _context_of(files)
    told: object = None

    def look(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        nonlocal stamps, current, told
        now = stamps_of(files.present)
        if now != stamps:
            try:
                current = _context_of(files)
            except (InvalidArgumentError, ssl.SSLError, OSError) as error:
                # Tried again at the next handshake: a file that could not be read may be readable
                # then, with the same stamp.
                if told != (told := (now, str(error))):
                    logger.error(
                        "cannot load the new certificate, the old one stays in use: %s", error
                    )
            else:
                stamps = now
        connection.context = current

    context.sni_callback = look
    return context


def _context_of(files: TlsFiles) -> ssl.SSLContext:
    load(files)  # raises an error in our words
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    if files.ca is not None:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
