"""Every setting of every kind: what is not finite, not of its kind or out of bounds is refused."""

from __future__ import annotations

import dataclasses
import filecmp
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kvcq_client.bounds
from kvcq_bench.errors import ScenarioError
from kvcq_bench.kinds import kill, steady
from kvcq_bench.scenario import Scenario, load_scenario, make_scenario
from kvcq_client import AsyncClient
from kvcq_client.consuming import config as consumer_config
from kvcq_client.consuming.config import ConsumerConfig
from kvcq_client.producing import config as producer_config
from kvcq_client.producing.config import ProducerConfig
from server import config as server_config
from server.config import ServerConfig
from server.settings import Sources
from store import bounds
from store import config as store_config
from store.bounds import numbers
from store.config import StoreConfig
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS: tuple[tuple[type, dict[str, bounds.Bounds], dict[str, Any]], ...] = (
    (StoreConfig, store_config._BOUNDS, {"root": Path("x")}),
    (ServerConfig, server_config._BOUNDS, {}),
    (ProducerConfig, producer_config._BOUNDS, {}),
    (ConsumerConfig, consumer_config._BOUNDS, {}),
)


def _fields() -> Iterator[Any]:
    for kind, table, others in _SETTINGS:
        for name, whole, (least, most) in numbers(kind, table):
            wrong = [nan, inf, -inf, -1, least - 1, most + 1, None, "7", True]
            if whole:
                wrong.append(least + 0.5)
            yield pytest.param(kind, others, name, wrong, id=f"{kind.__name__}.{name}")


@pytest.mark.parametrize(("kind", "others", "name", "wrong"), list(_fields()))
def test_a_number_that_cannot_be_is_refused_with_its_name_and_bounds(
    kind: type, others: dict[str, Any], name: str, wrong: list[object]
) -> None:
    for value in wrong:
        with pytest.raises((InvalidArgumentError, ValueError)) as refused:
            kind(**others, **{name: value})
        text = str(refused.value)
        assert text.startswith(f"{name}: {value!r} is not a")
        assert " number from " in text


@pytest.mark.parametrize(("kind", "table", "others"), _SETTINGS)
def test_every_setting_that_has_bounds_is_one(
    kind: type, table: dict[str, bounds.Bounds], others: dict[str, Any]
) -> None:
    known = {name: (least, most) for name, _, (least, most) in numbers(kind, table)}
    assert known.items() >= table.items()
    for field in dataclasses.fields(kind):
        if isinstance(field.default, bool):
            with pytest.raises((InvalidArgumentError, ValueError), match="neither true nor false"):
                kind(**others, **{field.name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store_host", ("127.0.0.1", 70_000)),
        ("store_host", "127.0.0.1:8081"),
        ("delete_when_hours", (24,)),
        ("delete_when_hours", (nan,)),
        ("segment_bytes", 4097),
        ("disk_full_ratio", 0.7),
        ("default_queue_count", 65_537),
        ("reclaim_unexpired", "yes"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_name(name: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError) as refused:
        StoreConfig(root=Path("x"), **{name: value})
    assert refused.value.field == name


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400"])
def test_as_text_they_are_refused_as_well(value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"reserved_hours: .* is not a number from"):
        Sources(flags={"store.reserved_hours": value}).read()


@pytest.mark.parametrize("scale", [nan, inf, 0, -1, 1001])
def test_a_scale_of_a_scenario_is_a_number_above_0(scale: float) -> None:
    with pytest.raises(ScenarioError, match="scale"):
        load_scenario("steady", scale=scale)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (kill.Parameters, {"seconds": nan}),
        (kill.Parameters, {"seconds": 1.0, "queues": -1}),
        (kill.Parameters, {"seconds": inf}),
        (kill.Parameters, {"seconds": 1.0, "queues": 1.5}),
        (
            steady.Parameters,
            {"cases": [{"size": nan}], "bytes_a_case": 1, "max_messages_a_case": 1},
        ),
    ],
)
def test_a_parameter_of_a_scenario_is_a_number_that_can_be(
    kind: type, parameters: dict[str, Any]
) -> None:
    scenario = Scenario("s", "S", "kill", 1, 1.0, {}, parameters)
    with pytest.raises(ScenarioError, match="is not"):
        scenario.parameters_as(kind)


@pytest.mark.parametrize("seed", [nan, -1, "1", 1 << 64])
def test_a_seed_is_a_whole_number(seed: Any) -> None:  # noqa: ANN401
    document = {"name": "s", "title": "S", "kind": "kill", "seed": seed, "parameters": {}}
    with pytest.raises(ScenarioError, match="seed"):
        make_scenario(document)


def test_the_client_which_comes_alone_has_the_same_check() -> None:
    ours, theirs = bounds.__file__, kvcq_client.bounds.__file__
    assert filecmp.cmp(ours, theirs, shallow=False), f"copy {ours} to {theirs}"


@pytest.mark.parametrize("timeout_s", [nan, inf, -inf])
async def test_a_timeout_of_a_client_is_a_number_that_can_be(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        AsyncClient("127.0.0.1:9", timeout_s=timeout_s)
    async with AsyncClient("127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="timeout_s"):
            await client.statistics(timeout_s=timeout_s)
