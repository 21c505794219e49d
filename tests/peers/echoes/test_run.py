"""A pair of an echo server and a client over real sockets, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.peers.echoes.clients import GrpcEcho
from tests.peers.echoes.run import METHODS, OURS, PAIRS, Pair, echo, installed_pairs
from tests.peers.echoes.table import Echoes, processor, rates
from tests.peers.turns import Found
from tests.peers.values import Sample, Timed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.integration
@pytest.mark.parametrize("pair", [OURS, PAIRS[-1]], ids=lambda pair: str(pair.server))
def test_pair_echoes_in_each_way_it_can(tmp_path: Path, pair: Pair) -> None:
    found = Found()
    echo(pair, 0, tmp_path, found, 0.0, lambda _: None)
    assert not found.failures
    done = [sample.work for sample in found.echoes]
    assert done == (list(METHODS) if pair is OURS else list(METHODS)[:3])
    assert all(sample.timed["count"] > 0 for sample in found.echoes)


def test_stack_that_is_not_installed_is_left_out() -> None:
    found = Found()
    absent = Pair("x", GrpcEcho, "X", "a_package_that_is_not_there")
    assert installed_pairs(found, [OURS, absent]) == [OURS]
    assert list(found.left_out.values()) == [
        "a_package_that_is_not_there is not installed: pip install '.[peers]'"
    ]


def test_stack_that_fails_is_noted(tmp_path: Path) -> None:
    found = Found()
    echo(Pair("no such stack", GrpcEcho, "X"), 0, tmp_path, found, 0.0, lambda _: None)
    [failure] = found.failures
    assert failure.startswith("echo, X, round 1: ")


def test_tables_have_a_row_for_each_stack() -> None:
    def sample(method: str, number: int) -> Sample:
        timed = Timed(1000 + number, 1.0).document()
        return Sample(OURS.title, method, "", "", number, timed, 0.1, 0.2)

    samples = [sample(method, number) for method in METHODS for number in range(2)]
    echoes = Echoes({"echoes": [one.document() for one in samples]})
    assert "1,000 (1,000 to 1,000)" in rates(echoes)
    assert "200 (200 to 200) + 100 (99.9 to 100)" in processor(echoes)


def test_without_echoes_there_is_no_table() -> None:
    echoes = Echoes({})
    assert rates(echoes) == processor(echoes) == ""
