"""The headers of a signed call, and the check of a signature.

The scheme is that of RocketMQ 5's clients, see kvcq_client/transport/secured.py. The signed time
may differ by `max_skew_s` from the server's, so a captured signature is not valid for longer. Some
RocketMQ clients sign local time and call it UTC; with `any_zone`, a time that is off by whole
quarters of an hour, as time zones are, counts as the same.
"""

from __future__ import annotations

import hmac
import re
from datetime import datetime
from typing import NamedTuple

from kvcq_client.transport import ACCESS_KEY_FORM, ALGORITHM, AUTHORIZATION, DATE_TIME, signature_of

_FORM = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<key>[^,/\s]+)(?:/[^,\s]*)?,\s*"
    r"SignedHeaders=(?P<signed>[^,\s]+),\s*Signature=(?P<signature>[0-9A-Fa-f]{40})"
)
_TIME_LENGTH = len("2024-01-31T23:59:59.123456789+01:00")
_QUARTER_S = 15 * 60
#: From UTC-12 to UTC+14.
_ZONES_S = 14 * 3600
_LONGEST = 1024


class Signed(NamedTuple):
    """The signature headers of a call, not verified."""

    access_key: str
    date_time: str
    signature: str


def signed_of(metadata: object) -> Signed | None:
    """The signature in the headers of a call; None if there is none, or it has another scheme."""
    date_time = authorization = ""
    for name, value in metadata or ():  # type: ignore[attr-defined] # the stubs leave it open
        if name == AUTHORIZATION and isinstance(value, str):
            authorization = value
        elif name == DATE_TIME and isinstance(value, str):
            date_time = value
    if not authorization or len(authorization) > _LONGEST:
        return None
    found = _FORM.fullmatch(authorization.strip())
    if found is None or found["signed"].lower() != DATE_TIME:
        return None
    if not ACCESS_KEY_FORM.fullmatch(found["key"]):
        return None
    return Signed(found["key"], date_time, found["signature"].lower())


def is_signed_with(secret: str, signed: Signed) -> bool:
    """Whether the signature matches. Takes constant time."""
    return hmac.compare_digest(signature_of(secret, signed.date_time), signed.signature)


def time_of(date_time: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 time with its zone; None for anything else.

    Most clients write 20240131T235959Z, Rust's 2024-01-31T23:59:59.123456789+01:00.
    """
    if len(date_time) > _TIME_LENGTH or not date_time.isascii():
        return None
    try:
        found = datetime.fromisoformat(date_time)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()


def is_fresh(signed_s: float, now_s: float, max_skew_s: float, *, any_zone: bool) -> bool:
    """Whether the signed time is close enough to the server's."""
    off_s = signed_s - now_s
    if any_zone and abs(off_s) <= _ZONES_S + max_skew_s:
        off_s -= round(off_s / _QUARTER_S) * _QUARTER_S
    return abs(off_s) <= max_skew_s
