"""The kinds of scenarios, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_bench.kinds.file_against_kv import run_file_against_kv
from kvcq_bench.kinds.kill import run_kill
from kvcq_bench.kinds.light_queues import run_light_queues
from kvcq_bench.kinds.lite_topics import run_lite_topics
from kvcq_bench.kinds.soak import run_soak
from kvcq_bench.kinds.steady import run_steady
from kvcq_bench.kinds.timers import run_timers
from kvcq_bench.kinds.topics import run_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_bench.run import Run

KINDS: dict[str, Callable[[Run], None]] = {
    "steady": run_steady,
    "topics": run_topics,
    "light-queues": run_light_queues,
    "file-against-kv": run_file_against_kv,
    "soak": run_soak,
    "kill": run_kill,
    "timers": run_timers,
    "lite-topics": run_lite_topics,
}

#: Kinds that need a store in this process.
EMBEDDED_KINDS = frozenset({"file-against-kv"})
