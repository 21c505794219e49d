"""The systems of a run, in the order of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.systems import bare, idle, in_process, ours, variants

if TYPE_CHECKING:
    from tests.benchmarks.system import System


def our_systems() -> list[System]:
    """Ours, its limits, ours with other settings or with many clients, and its parts."""
    return [ours.SYSTEM, *bare.SYSTEMS, *variants.SYSTEMS, idle.SYSTEM, *in_process.SYSTEMS]


def peer_systems() -> list[System]:
    from tests.peers import SYSTEMS

    return SYSTEMS
