"""server/cli/top: rates of two samples, and how they are laid out."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from kvcq_client import Activity, GroupDeadLetters, GroupLag, Job, TopicTraffic
from kvcq_client.pb.v1.jobs_pb2 import Job as JobMessage
from kvcq_client.wire import from_wire
from server.cli.top.figures import figures_of
from server.cli.top.sample import Sample
from server.cli.top.shown import document, screen

_RUNNING = from_wire(Job, JobMessage(job_id="j1", status="JOB_STATUS_RUNNING"))
_SCRUB = replace(_RUNNING, kind="scrub", step="log", done=1, total=4, percent=25.0)
_COMPACT = replace(_RUNNING, job_id="j2", kind="compact", elapsed_s=61.0)
BEFORE = Sample(
    100.0,
    "1.2",
    {
        "server.uptime_s": 50.0,
        "server.ready": 1,
        "server.messages_put": 1000,
        "server.messages_pulled": 10,
        "server.calls.Put": 5,
        "server.refusals.Put.DISK_FULL": 1,
        "store.flush_count": 3,
        "store.flush_seconds": 1.0,
    },
    Activity(
        [
            TopicTraffic("quiet", 7, 70, 0, 0),
            TopicTraffic("busy", 100, 1000, 0, 0),
            TopicTraffic("fell", 100, 1000, 5, 50),
        ],
        [],
        None,
        None,
        None,
    ),
    (),
)
NOW = Sample(
    102.0,
    "1.2",
    {
        "server.uptime_s": 52.0,
        "server.ready": 1,
        "server.messages_put": 3000,
        "server.messages_pulled": 30,
        "server.calls.Put": 25,
        "server.calls.Pull": 4,
        "server.refusals.Put.DISK_FULL": 2,
        "server.memory_bytes": 3 << 20,
        "store.flush_count": 5,
        "store.flush_seconds": 1.5,
        "store.disk_used_ratio": 0.25,
        "kvcq.default.sst_bytes": 1024,
        "kvcq.index.sst_bytes": 1024,
        "kvcq.write_stopped": 1,
        "meta.default.sst_bytes": 5,
    },
    Activity(
        [
            TopicTraffic("quiet", 7, 70, 0, 0),
            TopicTraffic("busy", 1100, 11_000, 20, 200),
            TopicTraffic("fell", 10, 100, 0, 0),
            TopicTraffic("", 4, 40, 0, 0),
            TopicTraffic("%LMQ%", 0, 0, 2, 20),
        ],
        [
            GroupLag("g", "busy", 5, 90_000),
            GroupLag("h", "%LMQ%", 50, None),
            GroupLag("s", "busy", 20, 95_000, shared=True, in_flight=12, waiting_again=7),
        ],
        12,
        3,
        80_000,
        [GroupDeadLetters("s", 4)],
    ),
    [_SCRUB, _COMPACT],
)


def test_rates_are_differences_over_the_time_between() -> None:
    figures = figures_of(BEFORE, NOW, 100_000, 10, 10)
    rates = figures.rates
    assert (rates.messages_in, rates.messages_out) == (1000, 10)
    assert (rates.calls, rates.refusals) == (12, 0.5)
    assert (rates.flushes, rates.flush_ms) == (1, 250)
    assert figures.topics == [
        ("busy", 500, 5000, 10, 100),
        ("fell", 5, 50, 0, 0),  # its row began anew
        ("", 2, 20, 0, 0),
        ("%LMQ%", 0, 0, 1, 10),
    ], "by bytes; what is quiet is left out"
    assert rates.bytes_in == 5070
    assert figures.groups == [
        ("h", "%LMQ%", 50, None, False, 0, 0),
        ("s", "busy", 20, 5.0, True, 12, 7),
        ("g", "busy", 5, 10.0, False, 0, 0),
    ]
    assert figures.dead_letters == [("s", 4)]
    assert figures.levels["sst_bytes"] == 2048, "those of the queues alone"
    assert figures.levels["dispatch_behind_bytes"] is None, "not told"
    assert [one.percent for one in figures.jobs] == [25, None]


def test_only_so_many_are_shown() -> None:
    figures = figures_of(BEFORE, NOW, 100_000, 1, 1)
    assert [one.topic for one in figures.topics] == ["busy"]
    assert [one.group for one in figures.groups] == ["h"]


def test_a_server_that_was_started_again_has_no_rates_yet() -> None:
    fresh = replace(NOW, numbers={**NOW.numbers, "server.uptime_s": 0.5})
    figures = figures_of(BEFORE, fresh, 100_000, 10, 10)
    assert figures.rates.messages_in == 0
    assert figures.topics == []


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"server.ready": 1.0}, "ready"),
        ({"server.ready": 0.0}, "NOT READY: puts are rejected"),
        ({"server.opening_progress": 0.25}, "opening its store, 25%"),
        ({"server.draining": 1.0}, "ending"),
    ],
)
def test_the_first_line_says_how_the_server_is(numbers: dict[str, float], says: str) -> None:
    sample = Sample(1.0, "1.2", numbers, Activity([], [], None, None, None), ())
    figures = figures_of(sample, sample, 0, 10, 10)
    assert says in _text(screen(figures, "here:1")).splitlines()[0]


def _text(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_of_it_is_laid_out() -> None:
    shown = _text(screen(figures_of(BEFORE, NOW, 100_000, 10, 10), "here:1", "no answer"))
    assert "kvcq 1.2 at here:1, up 52 s, ready, 12 topics, 3 groups" in shown
    assert "no answer" in shown
    assert "1,000/s, 5.0 KiB/s" in shown
    assert "1.0/s, 250.0 ms each" in shown
    assert "25.0% used" in shown
    assert "WRITES STOPPED" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["busy", "500", "4.9", "KiB", "10", "100", "B"] in rows
    assert ["(all", "others)", "2", "20", "B", "0", "0", "B"] in rows
    assert ["g", "busy", "5", "-", "-", "10", "s"] in rows
    assert ["s", "busy", "20", "12", "7", "5", "s"] in rows
    assert ["s", "4"] in rows, "dead letters"
    assert ["h", "(light", "queues)", "50", "-", "-", "-"] in rows
    assert ["j1", "scrub", "log", "25.0", "%", "0", "s"] in rows
    assert ["j2", "compact", "-", "1", "min", "1", "s"] in rows


def test_names_are_shown_and_never_obeyed() -> None:
    traffic = [TopicTraffic("[bold]a\x1b[2J", 5000, 50_000, 0, 0)]
    now = replace(NOW, activity=NOW.activity._replace(topics=traffic))
    shown = _text(screen(figures_of(BEFORE, now, 0, 10, 10), "here:1"))
    assert "\x1b" not in shown
    assert "[bold]a\\x1b" in shown


def test_a_document_has_the_same() -> None:
    found = document(figures_of(BEFORE, NOW, 100_000, 10, 10), "here:1", 7)
    assert found["timeMs"] == 7
    assert found["rates"]["messagesIn"] == 1000
    assert found["levels"]["memoryBytes"] == 3 << 20
    assert found["topics"][0] == {
        "topic": "busy",
        "messagesIn": 500,
        "bytesIn": 5000,
        "messagesOut": 10,
        "bytesOut": 100,
    }
    assert found["groups"][2]["behindS"] == 10
    assert found["deadLetters"] == [{"group": "s", "messages": 4}]
    assert found["jobs"][0]["percent"] == 25
