"""Light queues: each message is in 1, 10, 100 or 1,000 of them; a sample of queues is read back.

Each message is in `fan_out` consecutive queues, and the next message continues after them, back to
the first queue at the end. So the messages of each queue can be computed, and the checker stores
nothing for ten million queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.footprint import note_made, restart
from kvcq_bench.load import Plan, in_turn, produce_all, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    queues: int  # light queues of each fan-out
    fan_outs: list[int]
    units: int  # of each fan-out: messages are units / fan_out
    sample_queues: int  # of each fan-out, read and checked
    size: int = 256


def run_light_queues(run: Run) -> None:
    """Figures for each fan-out: units/s, sampled queues/s, seconds until ready after a restart,
    memory and disk above an empty store."""
    parameters = run.scenario.parameters_as(Parameters)
    homes = [Queue(f"fan-out-{fan_out}", 0) for fan_out in parameters.fan_outs]
    run.target.create_topics({home.topic: 1 for home in homes})
    ledger = run.ledger(len(homes), parameters.size)
    empty = run.recorder.point(0)
    touched = 0
    for stream, fan_out in enumerate(parameters.fan_outs):
        messages = max(1, parameters.units // fan_out)
        touched += min(parameters.queues, messages * fan_out)
        _fill(run, parameters, ledger, homes, stream, fan_out, messages)
        note_made(run.recorder, touched, "light queues", empty)
        _sample(run, parameters, ledger, stream, fan_out, messages)
    restart(run, touched, "light queues", empty)
    run.recorder.begin("read back")
    read_back(run, ledger, homes)


def _name(stream: int, place: int) -> str:
    return f"%LMQ%{stream}-{place}"


def _fill(
    run: Run,
    parameters: Parameters,
    ledger: Ledger,
    homes: list[Queue],
    stream: int,
    fan_out: int,
    messages: int,
) -> None:
    run.recorder.begin(f"{messages:,} messages in {fan_out:,} light queues each")
    queues = parameters.queues

    def names(stream: int, number: int) -> tuple[str, ...]:
        first = number * fan_out
        return tuple([_name(stream, at % queues) for at in range(first, first + fan_out)])

    run.touch_memory()
    plan = Plan(
        homes,
        in_turn([stream], messages, max(1, 1000 // fan_out)),
        parameters.size,
        light_queues=names,
        latency=f"put in {fan_out} light queues",
    )
    with run.recorder.rate(f"units, fan-out {fan_out:,}", messages * fan_out, "units/s"):
        produce_all(run, ledger, [plan])


def _sample(
    run: Run, parameters: Parameters, ledger: Ledger, stream: int, fan_out: int, messages: int
) -> None:
    """Read random light queues: each must have exactly the messages that name it, in order."""
    run.recorder.begin(f"read {parameters.sample_queues:,} light queues of fan-out {fan_out:,}")
    touched = min(parameters.queues, messages * fan_out)
    random = run.random(3, stream)
    places = random.choice(
        touched, min(parameters.sample_queues, touched), replace=False, shuffle=False
    ).tolist()
    histogram = run.recorder.latency("read a light queue")
    with run.recorder.rate(f"light queues read, fan-out {fan_out:,}", len(places), "queues/s"):
        for place in places:
            # Of all units in order, this queue has those at place, place + queues, and so on.
            units = range(place, messages * fan_out, parameters.queues)
            expected = [unit // fan_out for unit in units]
            began_s = perf_counter()
            found = []
            for _, batch in run.target.read_to_end({Queue(_name(stream, place)): 0}):
                found += [ledger.bodies.check(message.body) for message in batch]
            histogram.add(perf_counter() - began_s)
            if found != [(stream, number) for number in expected]:
                raise CheckFailedError(
                    f"{_name(stream, place)} holds {found[:5]}…, not messages {expected[:5]}…"
                )
            run.recorder.count("light_units_read", len(found))
