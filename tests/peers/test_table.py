"""Cells of the tables: what others reached, and how many times better ours is."""

from __future__ import annotations

import pytest

from tests.peers.measured import FORMAT, Measured
from tests.peers.table import _compared
from tests.peers.values import Durability, Sample, Timed
from tests.peers.works import work_of

_WORK = work_of(Durability.BEFORE_FSYNC, "put, batches of 128")


def _cell(ours: float, theirs: float) -> str | None:
    """That of a peer, of a figure of which less is better."""
    samples = [
        Sample(
            system,
            _WORK.name,
            Durability.BEFORE_FSYNC,
            _WORK.memory,
            number,
            Timed(1, 1.0).document(),
            more={"grown": grown},
        )
        for system, grown in (("kvcq", ours), ("nats", theirs))
        for number in range(2)
    ]
    titles = {"kvcq": "kvcq", "nats": "NATS"}
    measured = Measured(
        {"format": FORMAT, "titles": titles, "samples": [one.document() for one in samples]}
    )
    of = _compared(
        measured,
        Durability.BEFORE_FSYNC,
        _WORK,
        lambda sample: sample.more["grown"],
        more_is_better=False,
    )
    return of("nats")


def test_multiple_stands_beside_the_figure_of_another_system() -> None:
    assert _cell(8.0, 120.0) == "120 (120 to 120), **15**"


@pytest.mark.parametrize(("ours", "theirs"), [(8.0, -2.0), (-8.0, 2.0), (-8.0, -2.0), (8.0, 0.0)])
def test_what_shrank_has_no_multiple(ours: float, theirs: float) -> None:
    assert "**" not in str(_cell(ours, theirs))
