"""What a run keeps of itself stays small, however long it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kvcq_bench.recorder
from kvcq_bench.recorder import Recorder
from kvcq_bench.targets.embedded import EmbeddedTarget

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_samples_of_a_long_run_are_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvcq_bench.recorder, "_MOST_SAMPLES", 20)
    target = EmbeddedTarget(tmp_path, {"segment_bytes": 1 << 20})
    try:
        recorder = Recorder(target, 60.0, lambda _: None)
        for number in range(100):
            recorder.count("events")
            recorder.sample()
            assert len(recorder.samples) < 20, number
    finally:
        target.close()
    assert recorder.samples[0]["count.events"] == 1
    counts = [row["count.events"] for row in recorder.samples]
    assert counts == sorted(counts)
    assert sum("disk_kvcq_bytes" in row for row in recorder.samples) >= 2
