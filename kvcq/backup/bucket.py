"""An S3 or S3-compatible bucket, with a prefix. Needs the extra `kvcq[s3]`.

Address and keys come from the usual places: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, or the role of the machine. An object appears once it is complete. An
interrupted large upload leaves parts, which a lifecycle rule of the bucket should remove.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kvcq.backup.directory import pieces_of
from kvcq.errors import BackupDamagedError, BackupRefusedError, BackupTargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMES = frozenset({"s3", "s3a", "gs", "az"})
#: Timeouts of one request, and of all its attempts.
_TIMEOUT = "120s"
_RETRY = timedelta(seconds=60)
_TRIES = 5
_LISTED = 1000
_PART_BYTES = 8 << 20

_NO_BUCKET = re.compile("NoSuchBucket")
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
#: Texts in the library's errors, which contain the service's XML, and what to do.
_FAULTS = (
    (
        _NO_BUCKET,
        "there is no bucket {bucket} at {where}: make it first, or name another one",
    ),
    (  # it asks the machine for a role when it has no keys
        re.compile(r"//169\.254\.169\.254/"),
        f"no keys for {{where}}: set {_KEYS} where backups are taken, or give the machine a role",
    ),
    (
        re.compile("InvalidAccessKeyId|SignatureDoesNotMatch|InvalidClientTokenId|401 Unauth"),
        f"{{where}} does not accept the keys: look at {_KEYS}",
    ),
    (
        re.compile("403 Forbidden|AccessDenied"),
        "{where} does not allow it: the keys need the rights to list, read, write and delete in "
        "the bucket {bucket}",
    ),
    (
        re.compile("PermanentRedirect|AuthorizationHeaderMalformed|301 Moved"),
        "the bucket {bucket} is in another region: set AWS_REGION",
    ),
    (
        re.compile("error sending request|dns error|tcp connect error"),
        "{where} cannot be reached: look at AWS_ENDPOINT_URL, AWS_REGION and the network",
    ),
)


class Bucket:
    """Objects below a prefix. See Place."""

    def __init__(self, url: str) -> None:
        """Does not connect yet. Raises BackupRefusedError."""
        try:
            import obstore
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            raise BackupRefusedError(
                f"{url}: buckets need a library that is not installed: pip install 'kvcq[s3]'"
            ) from error
        # Constant after construction.
        self.names_first = True
        self.url = url
        self._name = url.partition("://")[2].partition("/")[0]
        self._obstore = obstore
        plain = url.replace("s3a://", "s3://", 1)
        options: dict[str, Any] = {"timeout": _TIMEOUT}
        self._endpoint = (
            os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        )
        if self._endpoint.startswith("http://"):
            options["allow_http"] = True
        try:
            # Its overloads are by scheme, which is not known here.
            make: Callable[..., Any] = from_url
            self._store: Any = make(
                plain,
                client_options=options,
                retry_config={"max_retries": _TRIES, "retry_timeout": _RETRY},
            )
        except Exception as error:
            raise BackupRefusedError(f"{url}: {_first_line(error)}") from error

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._errors():
            return {
                found["path"]: found["size"]
                for page in self._obstore.list(self._store, prefix, chunk_size=_LISTED)
                for found in page
            }

    def unfinished(self, prefix: str) -> list[str]:
        """Always empty: parts of an interrupted upload have no name. A lifecycle rule of the bucket
        removes them."""
        return []

    def read(self, name: str) -> Iterator[bytes]:
        try:
            found = self._obstore.get(self._store, name)
            yield from map(bytes, found.stream(min_chunk_size=_PART_BYTES))
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise self._failed(error) from error
            raise BackupDamagedError(f"{name} is missing in {self.url}") from None
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise self._failed(error) from error

    def put(
        self,
        stem: str,
        source: Path,
        size: int,
        tell: Callable[[bytes], None],
        name: Callable[[], str],
    ) -> None:
        failures: list[BaseException] = []

        def told(pieces: Iterator[bytes]) -> Iterator[bytes]:
            try:
                for piece in pieces:
                    tell(piece)
                    yield piece
            except BaseException as error:  # the library would make one of its own of it
                failures.append(error)
                raise

        with source.open("rb") as file:
            try:
                self._obstore.put(
                    self._store,
                    name(),
                    told(pieces_of(file.fileno(), size)),
                    use_multipart=size > _PART_BYTES,
                    chunk_size=_PART_BYTES,
                )
            except Exception as error:
                if failures:
                    raise failures[0] from error
                if isinstance(error, self._obstore.exceptions.BaseError | OSError):
                    raise self._failed(error) from error
                raise

    def put_bytes(self, name: str, data: bytes) -> None:
        with self._errors():
            self._obstore.put(self._store, name, data)

    def remove(self, name: str) -> None:
        with self._errors():
            self._obstore.delete(self._store, name)

    def link(self, name: str, source: Path) -> bool:
        return False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the library's errors: it has a class for each kind of failure, and also raises
        OSError."""
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> BackupTargetError:
        text = str(error)
        for pattern, fault in _FAULTS:
            if pattern.search(text):
                where = self._endpoint or self.url.partition("://")[0]
                return BackupTargetError(
                    f"{self.url}: {fault.format(bucket=self._name, where=where)}"
                )
        return BackupTargetError(f"{self.url}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """The error's message, without the library's own trace after it."""
    return str(error).partition("\n")[0]
