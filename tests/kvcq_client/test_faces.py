"""The blocking classes and those of event loops offer the same, in the same words."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, get_type_hints

import pytest

from kvcq_client import (
    Access,
    AsyncAccess,
    AsyncClient,
    AsyncConsumer,
    AsyncJobs,
    AsyncMigration,
    AsyncProducer,
    AsyncReceiver,
    AsyncTransaction,
    AsyncTransactionChecks,
    Client,
    Consumer,
    ConsumerConfig,
    Jobs,
    Message,
    Migration,
    Producer,
    ProducerConfig,
    Receiver,
    ReceiverConfig,
    Transaction,
    TransactionChecks,
)
from kvcq_client.consuming.config import ConsumerSettings
from kvcq_client.producing.config import ProducerSettings
from kvcq_client.receiving.config import ReceiverSettings
from kvcq_client.values import MessageFields

if TYPE_CHECKING:
    from collections.abc import Callable

FACES = [
    (Client, AsyncClient),
    (Producer, AsyncProducer),
    (Consumer, AsyncConsumer),
    (Receiver, AsyncReceiver),
    (Migration, AsyncMigration),
    (Access, AsyncAccess),
    (Jobs, AsyncJobs),
    (Transaction, AsyncTransaction),
    (TransactionChecks, AsyncTransactionChecks),
]


def _public(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")}


def _offered(face: type, name: str) -> tuple[str, list[inspect.Parameter], str]:
    """Docstring, parameters and what is returned, without the difference that there is to be."""
    member = getattr(face, name)
    if isinstance(member, property):
        member = member.fget
    signature = inspect.signature(member)
    returned = str(signature.return_annotation).replace("Async", "")
    return inspect.getdoc(member) or "", list(signature.parameters.values()), returned


@pytest.mark.parametrize(("blocking", "asynchronous"), FACES)
def test_both_have_the_same_names(blocking: type, asynchronous: type) -> None:
    assert _public(blocking) == _public(asynchronous)


@pytest.mark.parametrize(
    ("blocking", "asynchronous", "name"),
    [(*faces, name) for faces in FACES for name in sorted(_public(faces[0]))],
)
def test_each_is_called_and_described_alike(blocking: type, asynchronous: type, name: str) -> None:
    assert _offered(blocking, name) == _offered(asynchronous, name)


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        (ProducerSettings, ProducerConfig),
        (ConsumerSettings, ConsumerConfig),
        (ReceiverSettings, ReceiverConfig),
    ],
)
def test_settings_are_the_fields_of_the_config(settings: type, config: type) -> None:
    assert get_type_hints(settings) == get_type_hints(config)


@pytest.mark.parametrize(
    "call", [Client.put, AsyncClient.put, Producer.send, AsyncProducer.send, Producer.put]
)
def test_put_and_send_show_the_fields_of_a_message(call: Callable[..., object]) -> None:
    shown = inspect.signature(call).parameters
    for field in dataclasses.fields(Message)[2:]:
        assert shown[field.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[field.name].default == field.default
        assert field.name in MessageFields.__annotations__


def test_blocking_calls_are_no_coroutines() -> None:
    assert not any(inspect.iscoroutinefunction(getattr(Client, name)) for name in _public(Client))
    assert inspect.iscoroutinefunction(AsyncClient.put)
