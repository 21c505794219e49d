"""server/access/signatures.py: the headers of RocketMQ 5's clients."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import pytest

from kvcq_client import Credentials
from kvcq_client.transport.secured import Signer
from server.access.signatures import Signed, is_fresh, is_signed_with, signed_of, time_of

SECRET = "s3cret/with+signs="
DATE = "20240229T235958Z"
NOW_S = datetime(2024, 2, 29, 23, 59, 58, tzinfo=UTC).timestamp()


def signature(date: str = DATE, secret: str = SECRET) -> str:
    """Computed without the code under test."""
    return hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest()


def headers(authorization: str, date: str = DATE) -> list[tuple[str, str]]:
    return [("x-mq-date-time", date), ("authorization", authorization), ("x-mq-language", "GO")]


def form(key: str = "ak", rest: str = "", signed: str = "x-mq-date-time", hexed: str = "") -> str:
    return (
        f"MQv2-HMAC-SHA1 Credential={key}{rest}, SignedHeaders={signed}, "
        f"Signature={hexed or signature()}"
    )


@pytest.mark.parametrize(
    "authorization",
    [
        form(),
        form(hexed=signature().upper()),  # as the client for Node writes it
        form(rest="/region/RocketMQ"),
        form().replace(", ", ","),
    ],
)
def test_the_official_forms_are_read(authorization: str) -> None:
    found = signed_of(headers(authorization))
    assert found == Signed("ak", DATE, signature())
    assert is_signed_with(SECRET, found)


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer token",
        form(key=""),
        form(key="a b"),
        form(key="-ak"),
        form(signed="x-mq-client-id"),
        form(signed="x-mq-date-time;host"),
        form(hexed="12"),
        form(hexed="z" * 40),
        form() + "0",
        form() + ", Signature=" + signature(),
        "MQv2-HMAC-SHA256" + form().removeprefix("MQv2-HMAC-SHA1"),
        form(rest="/" + "x" * 2000),
    ],
)
def test_what_is_no_signature_is_none(authorization: str) -> None:
    assert signed_of(headers(authorization)) is None


def test_headers_may_be_missing_or_in_bytes() -> None:
    assert signed_of(None) is None
    assert signed_of([("authorization", form().encode())]) is None
    without_time = signed_of([("authorization", form())])
    assert without_time is not None
    assert not is_signed_with(SECRET, without_time)


def test_anything_altered_does_not_fit() -> None:
    good = Signed("ak", DATE, signature())
    assert is_signed_with(SECRET, good)
    assert not is_signed_with(SECRET + "x", good)
    assert not is_signed_with(SECRET, good._replace(date_time="20240229T235959Z"))
    for at in range(40):
        digit = "1" if good.signature[at] == "0" else "0"
        altered = good.signature[:at] + digit + good.signature[at + 1 :]
        assert not is_signed_with(SECRET, good._replace(signature=altered))


def test_a_time_is_one_of_the_calendar() -> None:
    assert time_of(DATE) == NOW_S
    for same in ("2024-02-29T23:59:58Z", "2024-03-01T01:59:58+02:00"):
        assert time_of(same) == NOW_S
    assert time_of("2024-02-29T23:59:58.123456789Z") == pytest.approx(NOW_S + 0.123456)
    for wrong in (
        "",
        "2024-02-29",
        "2024-02-29T23:59:58",
        "2024-02-29T23:59:58.123456789012Z" + "0" * 9,
        "0001-01-01T00:00:00+25:00",
        "20240230T000000Z",
        "20240229T235958",
        DATE + "Z",
        "x" * 16,
    ):
        assert time_of(wrong) is None


@pytest.mark.parametrize(
    ("off_s", "any_zone", "fresh"),
    [
        (0, False, True),
        (300, False, True),
        (-300, False, True),
        (301, False, False),
        (-301, False, False),
        (3600, False, False),
        (3600, True, True),  # a client in another zone that calls its local time UTC
        (-8 * 3600 + 200, True, True),
        (5 * 3600 + 45 * 60, True, True),
        (3600 + 400, True, False),
        (15 * 3600, True, False),
    ],
)
def test_a_signature_is_good_for_five_minutes(off_s: int, any_zone: bool, fresh: bool) -> None:
    assert is_fresh(NOW_S + off_s, NOW_S, 300.0, any_zone=any_zone) is fresh


def test_our_client_signs_once_a_second() -> None:
    times = [NOW_S + 0.2]
    signer = Signer(Credentials("ak", SECRET), now_s=lambda: times[0])
    first = signer.headers()
    assert first == tuple(headers(form()))[:2]
    times[0] += 0.7
    assert signer.headers() is first
    times[0] += 0.2
    found = signed_of(signer.headers())
    assert found is not None
    assert found.date_time == "20240229T235959Z"
    assert is_signed_with(SECRET, found)


def test_a_secret_is_in_no_text() -> None:
    assert SECRET not in repr(Credentials("ak", SECRET))
    for key, secret in (("", "s"), ("a,b", "s"), ("a", "")):
        with pytest.raises(ValueError, match=r"access_key|secret"):
            Credentials(key, secret)
