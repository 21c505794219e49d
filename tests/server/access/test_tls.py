"""server/access/tls.py and kvcq_client/transport/channel.py: real handshakes, real rotations."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client import (
    TLS,
    AsyncClient,
    Client,
    HandshakeError,
    Message,
    Queue,
    Start,
    UnavailableError,
)
from kvcq_client.transport import channel as channels
from server.access import ReloadedTls, TlsFiles
from server.config import ServerConfig
from store.errors import InvalidArgumentError
from tests.support.certificates import Authority
from tests.support.free_port import free_port
from tests.support.serving import serving
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READY = grpc.ChannelConnectivity.READY


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def settings_of(files: tuple[Path, Path], ca: Path | None = None) -> dict[str, Any]:
    return {"tls_cert": files[0], "tls_key": files[1], "tls_ca": ca}


async def reaches(target: str, tls: TLS | None) -> bool:
    """Whether the client's channel comes to stand: what its first handshake says."""
    async with AsyncClient(target, tls=tls) as client:
        channel = client._connection._channel.channel()
        state = channel.get_state(try_to_connect=True)
        while state not in (READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)
        return bool(state is READY)


async def test_messages_go_over_tls(tmp_path: Path, authority: Authority) -> None:
    settings = settings_of(authority.issue())
    async with serving(tmp_path / "store", **settings) as served:
        tls = TLS(ca=authority.ca)
        async with AsyncClient(served.target, tls=tls) as client:
            await client.put(Message("T", b"one"))
            async with client.producer() as producer:
                await producer.send("T", b"two")
            async with await client.consumer("T", start=Start.EARLIEST) as consumer:
                bodies = [message.body async for message in consumer.to_end()]
        assert sorted(bodies) == [b"one", b"two"]


async def test_a_blocking_caller_has_a_stream_of_its_own_over_tls(
    tmp_path: Path, authority: Authority
) -> None:
    own = authority.issue("client")
    tls = TLS(ca=authority.ca, cert=own[0], key=own[1])

    def work(target: str) -> None:
        with Client(target, tls=tls) as client:
            client.create_topic("T", 1)
            while client._connection.call_stream.own is None:
                client.pull("T", 0, 0)
            assert client.put(Message("T", b"one")).queue_offset == 0

    async with serving(
        tmp_path / "store", **settings_of(authority.issue(), authority.ca)
    ) as served:
        await asyncio.to_thread(work, served.target)


async def test_who_does_not_fit_is_not_let_in(tmp_path: Path, authority: Authority) -> None:
    foreign = Authority(tmp_path / "pki", "foreign")
    own_cert, own_key = authority.issue("client")
    foreign_cert, foreign_key = foreign.issue("stranger")
    expired_cert, expired_key = authority.issue("late", days=-1)
    settings = settings_of(authority.issue(), authority.ca)
    async with serving(tmp_path / "store", **settings) as served:
        ca = authority.ca
        refused = {
            "plain text": None,
            "another authority is trusted": TLS(ca=foreign.ca, cert=own_cert, key=own_key),
            "no certificate": TLS(ca=ca),
            "a foreign certificate": TLS(ca=ca, cert=foreign_cert, key=foreign_key),
            "an expired certificate": TLS(ca=ca, cert=expired_cert, key=expired_key),
            "another name": TLS(ca=ca, cert=own_cert, key=own_key, server_name="elsewhere"),
        }
        for case, tls in refused.items():
            assert not await reaches(served.target, tls), case
        assert await reaches(served.target, TLS(ca=ca, cert=own_cert, key=own_key))


TAKES_NO_TLS = "does not speak TLS"
SPEAKS_TLS = "speaks TLS: give tls"


async def test_a_client_says_at_once_what_is_wrong_with_tls(
    tmp_path: Path, authority: Authority
) -> None:
    """Each way to begin: long before the time of the call, and of a producer, is up."""
    foreign = Authority(tmp_path / "pki", "foreign")
    own, late = authority.issue(), authority.issue("late", days=-1)
    ca = TLS(ca=authority.ca)
    cases: list[tuple[dict[str, Any], TLS | None, str]] = [
        ({}, ca, TAKES_NO_TLS),
        (settings_of(own), None, SPEAKS_TLS),
        (settings_of(own), TLS(ca=foreign.ca), "an authority that is not trusted"),
        (settings_of(own), TLS(ca=authority.ca, server_name="elsewhere"), "for other names"),
        (settings_of(late), ca, "an expired certificate"),
        (settings_of(own, authority.ca), None, SPEAKS_TLS),
        (settings_of(own, authority.ca), ca, "rejects this client's certificate"),
    ]
    for number, (settings, tls, fault) in enumerate(cases):
        async with (
            serving(tmp_path / f"store{number}", **settings) as served,
            asyncio.timeout(LIMIT_S),
            AsyncClient(served.target, tls=tls) as client,
        ):
            with pytest.raises(HandshakeError, match=fault):
                await client.ping()
            with pytest.raises(HandshakeError, match=fault):
                await client.put(Message("T", bytes(100_000)))
            with pytest.raises(HandshakeError, match=fault):
                await client.consumer("T")
            async with await client.consumer({Queue("T", 0): 0}) as consumer:
                with pytest.raises(HandshakeError, match=fault):
                    await consumer.batch(30.0)
            async with client.producer() as producer:
                sending = await producer.send("T", b"")
            assert isinstance(sending.exception(), HandshakeError)


async def test_who_was_connected_before_waits_for_the_right_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    """A rotation is no reason to lose what a producer has taken."""
    foreign = Authority(tmp_path / "foreign", "foreign")
    store, files = tmp_path / "store", authority.issue()
    port = free_port()
    async with serving(store, port=port, **settings_of(files)) as served:
        client = AsyncClient(served.target, tls=TLS(ca=authority.ca))
        await client.put(Message("T", b"one"))
    async with client, client.producer() as producer:
        async with serving(store, port=port, **settings_of(foreign.issue())):
            sending = await producer.send("T", b"two")
            with pytest.raises(UnavailableError) as caught:
                await client.ping(timeout_s=1.0)
            assert not isinstance(caught.value, HandshakeError)
            assert not sending.done()
        async with serving(store, port=port, **settings_of(files)):
            assert (await sending).queue_offset >= 0


async def test_a_server_whose_certificate_expired_is_refused(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "store", **settings_of(authority.issue(days=-1))) as served:
        assert "expired" in caplog.text
        assert not await reaches(served.target, TLS(ca=authority.ca))
        authority.issue()
        assert await reaches(served.target, TLS(ca=authority.ca))


async def test_certificates_are_rotated_while_calls_go_on(
    tmp_path: Path, authority: Authority
) -> None:
    """Also the authority: who trusts the former one is refused, streams that are open go on."""
    new = Authority(tmp_path / "new", "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.ca.read_bytes())
    files = authority.issue()
    async with (
        serving(tmp_path / "store", **settings_of(files)) as served,
        AsyncClient(served.target, tls=TLS(ca=trusted)) as client,
        client.producer() as producer,
    ):
        await producer.put(Message("T", b"before"))  # so that its stream is open
        channel = client._connection._channel
        before = channel.channel()
        for made, used in zip(new.issue(), files, strict=True):
            os.replace(made, used)  # noqa: PTH105 - as a renewal does
        assert not await reaches(served.target, TLS(ca=authority.ca))
        await producer.put(Message("T", b"after"))
        trusted.write_bytes(new.ca.read_bytes())
        channel._look_s = 0.0  # a second has passed
        assert (await client.create_topic("U", 1)).queue_count == 1  # on a new connection
        assert channel.channel() is not before
        await producer.put(Message("T", b"still"))


async def test_a_client_takes_new_files_when_all_of_them_are_there(
    tmp_path: Path, authority: Authority
) -> None:
    """One that is written in place is empty first, then cut short."""
    ca = tmp_path / "trusted.pem"
    ca.write_bytes(authority.ca.read_bytes())
    cert, key = authority.issue()
    channel = channels.Channel("127.0.0.1:1", [], TLS(ca=ca, cert=cert, key=key), None)

    def changed() -> bool:
        before = channel.channel()
        channel._look_s = 0.0  # a second has passed
        return channel.channel() is not before

    for file in (ca, cert, key):
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-4]):
            file.write_bytes(damaged)
            assert not changed()
        file.write_bytes(whole)
        assert changed()
        assert not changed()
    former = key.read_bytes()
    authority.issue()
    renewed = key.read_bytes()
    key.write_bytes(former)
    assert not changed()
    key.write_bytes(renewed)
    assert changed()
    await channel.close()


def test_a_change_that_is_half_done_changes_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.issue()
    tls = ReloadedTls(TlsFiles(cert, key))
    assert tls.fetch() is None
    expires = tls.expires
    former = key.read_bytes()
    authority.issue(days=90)
    renewed = key.read_bytes()
    key.write_bytes(former)
    with caplog.at_level(logging.ERROR):
        assert tls.fetch() is None
        assert tls.fetch() is None
    assert tls.expires == expires
    assert caplog.text.count("does not belong to the certificate") == 1
    key.unlink()
    assert tls.fetch() is None
    key.write_bytes(renewed)
    assert tls.fetch() is not None
    assert tls.expires > expires
    assert tls.fetch() is None


DAMAGES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "no certificate": (lambda cert, key: cert.unlink(), "server.tls_cert"),
    "a certificate that is none": (lambda cert, key: cert.write_bytes(b"x"), "server.tls_cert"),
    "a key that is a certificate": (
        lambda cert, key: key.write_bytes(cert.read_bytes()),
        "server.tls_key",
    ),
    "no key": (lambda cert, key: key.unlink(), "server.tls_key"),
    "an empty key": (lambda cert, key: key.write_bytes(b""), "server.tls_key"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_files_that_are_wrong_are_refused_at_the_start(authority: Authority, case: str) -> None:
    damage, field = DAMAGES[case]
    cert, key = authority.issue()
    damage(cert, key)
    with pytest.raises(InvalidArgumentError) as refused:
        ReloadedTls(TlsFiles(cert, key, authority.ca))
    assert refused.value.field == field


async def test_a_server_does_not_start_with_the_key_of_another_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    cert, _ = authority.issue()
    _, key = authority.issue("other")
    with pytest.raises(InvalidArgumentError, match="does not belong"):
        async with serving(tmp_path / "store", **settings_of((cert, key))):
            pass
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"tls_cert": "c"}, "tls_key"),
        ({"tls_key": "k"}, "tls_cert"),
        ({"tls_ca": "a"}, "tls_cert"),
        ({"tls_port": 0}, "tls_cert"),
        ({"tls_port": -1, "tls_cert": "c", "tls_key": "k"}, "tls_port"),
        (
            {"tls_port": 0, "tls_cert": "c", "tls_key": "k", "advertised_address": "x:1"},
            "tls_port",
        ),
        (
            {"host": "0.0.0.0", "tls_cert": "c", "tls_key": "k", "access": True, "tls_port": 0},
            "host",
        ),
        ({"host": "0.0.0.0"}, "host"),
        ({"host": "::"}, "host"),
        ({"host": "broker.example"}, "host"),
        ({"host": "0.0.0.0", "tls_cert": "c", "tls_key": "k"}, "host"),
        ({"host": "0.0.0.0", "access": True}, "host"),
        ({"metrics_host": "0.0.0.0", "metrics_port": 0}, "metrics_host"),
        ({"metrics_host": "0.0.0.0", "metrics_port": 0, "access": True}, "metrics_host"),
    ],
)
def test_listening_for_everybody_takes_both(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        ServerConfig(**settings)
    assert refused.value.field == field


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_port_takes_tls_and_the_first_none(
    tmp_path: Path, authority: Authority, workers: int
) -> None:
    settings = {**settings_of(authority.issue()), "tls_port": 0, "workers": workers}
    async with serving(tmp_path / "store", **settings) as served:
        secured = f"127.0.0.1:{served.server.tls_port}"
        tls = TLS(ca=authority.ca)
        async with AsyncClient(served.target) as plain, AsyncClient(secured, tls=tls) as client:
            await plain.put(Message("t", b"plain", queue_id=0))
            await client.put(Message("t", b"tls", queue_id=0))
            pulled = await plain.pull("t", 0, 0)
            assert [each.body for each in pulled.messages] == [b"plain", b"tls"]
        assert not await reaches(served.target, tls)
        assert not await reaches(secured, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_may_be_served_without(host: str, tmp_path: Path) -> None:
    assert ServerConfig(host=host).host == host
    both = ServerConfig(
        host="0.0.0.0", tls_cert=tmp_path / "c", tls_key=tmp_path / "k", access=True
    )
    assert both.host == ServerConfig(host="0.0.0.0", insecure_listen=True).host
    # An address where nothing is served is nobody's way in.
    assert ServerConfig(metrics_host="0.0.0.0").metrics_port is None


def test_a_client_says_what_is_wrong_with_its_files(authority: Authority, tmp_path: Path) -> None:
    cert, _ = authority.issue()
    with pytest.raises(ValueError, match="cert and key belong together"):
        TLS(cert=cert)
    with pytest.raises(FileNotFoundError):
        Client("127.0.0.1:1", tls=TLS(ca=tmp_path / "none.pem"))
