"""server/process/outlet.py: lines are written in order, or dropped and counted; nobody waits."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from server.process.outlet import Outlet, OutletHandler, as_json, in_words

if TYPE_CHECKING:
    from collections.abc import Callable


def test_lines_come_out_in_order() -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer)
    logger = logging.Logger("test")
    logger.addHandler(OutletHandler(outlet))
    for number in range(100):
        logger.warning("line %d", number)
    assert outlet.drain(60)
    assert os.read(reader, 1 << 16) == b"".join(b"line %d\n" % number for number in range(100))
    os.close(writer)
    os.close(reader)


@pytest.mark.parametrize(
    ("dropped", "says"),
    [
        (in_words, "800 lines were dropped here"),
        (as_json, '{"event": "dropped", "lines": 800}\n'),
    ],
)
def test_without_a_reader_lines_are_dropped_and_counted(
    dropped: Callable[[int], str], says: str
) -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer, waiting_most=200_000, dropped=dropped)  # more than a pipe holds
    for _ in range(1000):
        outlet.write("x" * 999 + "\n")
    assert not outlet.drain(0)
    taken = 0
    while taken < 200_000:
        taken += len(os.read(reader, 1 << 16))
    assert taken == 200_000
    assert outlet.drain(60)
    outlet.write("there is a reader again\n")
    assert outlet.drain(60)
    text = os.read(reader, 1 << 16).decode()
    assert text.startswith(says)
    assert text.endswith("there is a reader again\n")
    os.close(writer)
    os.close(reader)


def test_a_reader_that_is_gone_hurts_nobody() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    outlet = Outlet(writer)
    for _ in range(10):
        outlet.write("nobody hears this\n")
    assert outlet.drain(60)
    outlet.write("nor this\n")
    os.close(writer)
