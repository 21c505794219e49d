"""Determines which records of a RocketMQ store are live, given deleted and recreated topics.

RocketMQ deletes a topic by removing its configuration and its queues; the records stay in the log.
If the topic is created again, its queue offsets begin at 0 again. So the log may have several
*generations* of a topic, and only the queues show which one is live:

- Where a queue's offsets begin at 0 again along the log, another generation begins. The last one is
live, and the queue's files must begin in it. If they begin in an earlier one, they contradict the
log, and the store is not taken over.
- All queues of a topic are deleted at once. So a run of offsets that begins before the end of known
dead records is dead as a whole, even in a queue that was not written since.
- A queue without files whose id is beyond the topic's configured count is from an earlier
generation with more queues. Other queues without files are rebuilt from the log's last generation.
- A light queue has no configuration: it exists while its files do. Without files it was deleted, if
its records had reached their queues before RocketMQ ended; otherwise it had no files yet.

The result is stored as for other topics: the physical offset at which a topic begins
(`TopicConfig.created_offset`), and marks of deletion for light queues. So everything that reads the
log again (replay, backfills, verification, checks, Spark) uses the same records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from migration.plan.queue_evidence import QueueEvidence
    from migration.plan.queue_runs import QueueRuns, Run

    QueueKey = tuple[str, int]


class DeadRecords(NamedTuple):
    """Records in the log of a topic or light queue that can no longer be read."""

    name: str
    records: int
    generations: int  # number in the log, at least, including the live one
    live_from: int | None  # physical offset from which records are live; None: deleted


@dataclass
class Generations:
    """The live parts of a log."""

    #: Live topics with dead records: physical offset from which records are live.
    live_from: dict[str, int] = field(default_factory=dict)
    #: Light queues with dead records: physical offset below which they are dead.
    dead_light: dict[str, int] = field(default_factory=dict)
    #: The runs in the log of each live queue.
    live: dict[QueueKey, Run] = field(default_factory=dict)
    dead: list[DeadRecords] = field(default_factory=list)
    #: Contradictions, so that it is unknown which records are live.
    refusals: list[str] = field(default_factory=list)


def find_generations(
    runs: QueueRuns,
    topics: Mapping[str, int | None],
    evidence: QueueEvidence | None,
) -> Generations:
    """Determine which records are live.

    `topics`: existing ones, with their configured number of queues, None if unknown. `evidence`:
    from the queues; without it only the log decides.
    """
    found = Generations()
    queues_of: dict[str, list[int]] = {}
    for name, queue_id in runs:
        queues_of.setdefault(name, []).append(queue_id)
    for name in sorted(queues_of):
        if is_light(name):
            _light_queue(found, name, runs, evidence)
        elif name in topics:
            _topic(found, name, sorted(queues_of[name]), topics[name], runs, evidence)
        else:
            _deleted(found, name, queues_of[name], runs)
    return found


def _topic(
    found: Generations,
    name: str,
    queue_ids: list[int],
    configured: int | None,
    runs: QueueRuns,
    evidence: QueueEvidence | None,
) -> None:
    last = {queue_id: runs.last((name, queue_id)) for queue_id in queue_ids}
    dead = [run for queue_id in queue_ids for run in runs.earlier((name, queue_id))]
    if configured is not None and evidence is not None:
        for queue_id in [each for each in queue_ids if each >= configured]:
            run = last[queue_id]
            if not evidence.exists(name, queue_id) and evidence.was_dispatched(run):
                dead.append(last.pop(queue_id))
    if not dead:
        found.live.update(_of_topic(name, last))
        return
    live_from = max(run.end for run in dead)
    for queue_id, run in sorted(last.items(), key=lambda each: each[1].begin):
        front = None if evidence is None else evidence.front(name, queue_id)
        if front is not None and front.physical_offset < min(run.begin, live_from):
            _refuse(found, name, queue_id, front.physical_offset, live_from)
        elif run.begin < live_from:
            # A run that begins before the end of the dead records is dead as a whole, unless
            # something shows that it is live.
            if front is not None or runs.earlier((name, queue_id)):
                _refuse(found, name, queue_id, run.begin, live_from)
            dead.append(last.pop(queue_id))
            live_from = max(live_from, run.end)
    found.live_from[name] = live_from
    found.live.update(_of_topic(name, last))
    most = max(1 + len(runs.earlier((name, queue_id))) for queue_id in queue_ids)
    found.dead.append(DeadRecords(name, sum(run.count for run in dead), max(2, most), live_from))


def _light_queue(
    found: Generations, name: str, runs: QueueRuns, evidence: QueueEvidence | None
) -> None:
    earlier, last = runs.earlier((name, 0)), runs.last((name, 0))
    dead = [*earlier]
    lives = True
    if evidence is not None:
        if not evidence.exists(name, 0):
            lives = not evidence.was_dispatched(last)
        elif dead:
            front = evidence.front(name, 0)
            if front is not None and front.physical_offset < last.begin:
                _refuse(found, name, 0, front.physical_offset, last.begin)
    if lives:
        found.live[name, 0] = last
    else:
        dead.append(last)
    if dead:
        live_from = found.dead_light[name] = dead[-1].end
        count = sum(run.count for run in dead)
        generations = len(earlier) + 1
        found.dead.append(DeadRecords(name, count, generations, live_from if lives else None))


def _deleted(found: Generations, name: str, queue_ids: list[int], runs: QueueRuns) -> None:
    chains = [
        [*runs.earlier((name, queue_id)), runs.last((name, queue_id))] for queue_id in queue_ids
    ]
    count = sum(run.count for chain in chains for run in chain)
    found.dead.append(DeadRecords(name, count, max(map(len, chains)), None))


def _refuse(found: Generations, name: str, queue_id: int, begins: int, live_from: int) -> None:
    found.refusals.append(
        f"queue {queue_id} of {name!r} begins with the record at physical offset {begins}, but "
        f"records of an earlier {name!r}, which was deleted, reach to {live_from}. It is unknown "
        f"which of them to keep: restore consumequeue/{name} from a copy, or delete the topic in "
        "RocketMQ"
    )


def _of_topic(name: str, live: Mapping[int, Run]) -> Iterable[tuple[QueueKey, Run]]:
    for queue_id, run in live.items():
        yield (name, queue_id), run
