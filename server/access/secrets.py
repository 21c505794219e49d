"""Secrets at rest: encrypted in `notes/`, with a key that is outside the store.

Checking a signature takes the secret itself, so a hash is not enough. A copy of the store without
the key file has no readable secret. A sealed secret is

| at | size | content                                                     |
|---:|-----:|-------------------------------------------------------------|
|  0 |    1 | form, 1                                                     |
|  1 |   12 | random nonce                                                |
| 13 |      | AES-256-GCM of the secret in UTF-8; the user's name is bound to it |

The key file is 64 hex digits and a line end, mode 0600.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from server.errors import KeyFileError
from store.base import fsync_directory
from store.errors import InvalidArgumentError

_FORM = b"\x01"
_NONCE_BYTES = 12
_KEY_BYTES = 32
#: Mode bits that must not be set: access for others than the owner.
_OTHERS = 0o077

MIN_SECRET, MAX_SECRET = 8, 256


class Vault:
    """Seals and unseals secrets. Thread: any."""

    def __init__(self, key: bytes, path: Path) -> None:
        self._cipher = AESGCM(key)
        self._path = path

    @classmethod
    def open(cls, path: Path) -> Vault:
        """Open the vault with the key in the file; create the file if it is missing.

        Raises KeyFileError. Durability: a new key is on disk on return.
        """
        try:
            return cls(_read(path), path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise KeyFileError(path, f"cannot be read: {error.strerror or error}") from error
        try:
            return cls(_make(path), path)
        except OSError as error:
            raise KeyFileError(path, f"cannot be created: {error.strerror or error}") from error

    def seal(self, name: str, secret: str) -> bytes:
        """Seal a secret. The result differs each time."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _FORM + nonce + self._cipher.encrypt(nonce, secret.encode(), name.encode())

    def unseal(self, name: str, sealed: bytes) -> str:
        """The secret of the user. Raises KeyFileError if it was sealed with another key."""
        nonce, data = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            if sealed[:1] != _FORM:
                raise InvalidTag
            return self._cipher.decrypt(nonce, data, name.encode()).decode()
        except (InvalidTag, ValueError):
            raise KeyFileError(
                self._path,
                f"cannot decrypt the secret of {name!r}: restore the key file of this store",
            ) from None


def new_secret() -> str:
    """A new random secret of 256 bits: 43 letters, digits, - and _."""
    return secrets.token_urlsafe(_KEY_BYTES)


def check_secret(field: str, secret: str) -> str:
    """Return `secret`. Raises InvalidArgumentError, without revealing it."""
    if not (
        MIN_SECRET <= len(secret) <= MAX_SECRET
        and secret.isascii()
        and secret.isprintable()
        and " " not in secret
    ):
        raise InvalidArgumentError(
            field,
            f"must be {MIN_SECRET} to {MAX_SECRET} printable ASCII characters without "
            "spaces; without a secret, one is generated",
        )
    return secret


def _read(path: Path) -> bytes:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise KeyFileError(path, f"can be read by other users: chmod 600 {path}")
    with suppress(ValueError):
        key = bytes.fromhex(text)
        if len(key) == _KEY_BYTES:
            return key
    raise KeyFileError(path, "does not contain a key of 64 hex digits")


def _make(path: Path) -> bytes:
    """If two processes start at once, one creates the key file and the other reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = secrets.token_bytes(_KEY_BYTES)
    # Named at random: in containers each start has the same pid, and finds what a crash left.
    descriptor, name = tempfile.mkstemp(".new", f"{path.name}.", path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)  # unlike a rename it replaces no key
        except FileExistsError:
            key = _read(path)
    finally:
        new.unlink()
    fsync_directory(path.parent)
    return key
