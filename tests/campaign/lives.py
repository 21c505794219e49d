"""One store, and the lives of the servers that run on it: started, loaded, ended, judged."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from kvcq.backup import list_backups, open_place, restore
from kvcq_client.pb.v1 import jobs_pb2, jobs_pb2_grpc
from migration.check import check_store
from tests.campaign.decided import DecidingWorker
from tests.campaign.disk import LoopDisk
from tests.campaign.judge import check_latest, judge
from tests.campaign.limits import Limits
from tests.campaign.lite import LiteWorker
from tests.campaign.model import Failure, Model
from tests.campaign.session import Session, Stubs
from tests.campaign.shared import SharedWorker
from tests.campaign.timed import TimedWorker
from tests.campaign.workload import Worker
from tests.support.skewed_clock import Skew

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tests.campaign.owner import Owner

_ROOT = Path(__file__).parents[2]
_WORKERS = 2
_RESERVED = "store.reserved_hours"
#: Before the whole name of a constant of the program that is to have another value.
CONSTANT = "constant "
_OF_STORE = f"{CONSTANT}store.config.StoreConfig."
#: How far the clock is ahead, s: right, wrong by minutes, by hours, by a year.
_SKEWS_S = (0, 0, 120, 7200, 365 * 86_400)
#: A server that has no more to say by then hangs.
_ANSWER_S = 60.0


class Launcher:
    """Starts servers quickly; see tests.campaign.launcher."""

    def __init__(self) -> None:
        self._control, other = socket.socketpair()
        self._control.settimeout(_ANSWER_S)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.launcher", str(other.fileno())],
            pass_fds=[other.fileno()],
            cwd=_ROOT,
            start_new_session=True,
        )
        other.close()

    def start(self, arguments: Sequence[object], stdout: int, stderr: int) -> int:
        """Returns the process id."""
        socket.send_fds(self._control, [json.dumps(arguments).encode()], [stdout, stderr])
        return int.from_bytes(self._control.recv(8), "big")

    def wait(self) -> int:
        """The exit code of the server, negative for a signal. Raises Failure when it hangs."""
        try:
            return os.waitstatus_to_exitcode(int.from_bytes(self._control.recv(8), "big"))
        except TimeoutError:
            raise Failure(f"the server did not end within {_ANSWER_S:.0f} s") from None

    def close(self) -> None:
        """It ends once no server runs."""
        self._control.close()
        self._process.wait(_ANSWER_S)

    def close_now(self) -> None:
        """Kill it and the server that it runs."""
        self._control.close()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_ANSWER_S)


class Server:
    """One life. Standard error goes to a file, which is kept when something fails."""

    def __init__(
        self, launcher: Launcher, root: Path, settings: dict[str, str], log: Path, skew: Path
    ) -> None:
        self._launcher = launcher
        self._log = log
        reading, writing = os.pipe()
        self._events = os.fdopen(reading, encoding="utf-8")
        arguments: list[object] = ["serve", "--json", "--port", "0", "--data", str(root)]
        constants = {}
        for name, value in settings.items():
            if name.startswith(CONSTANT):
                constants[name.removeprefix(CONSTANT)] = value
            else:
                arguments += ["--set", f"{name}={value}"]
        arguments = [str(skew), constants, *arguments]
        with log.open("ab") as errors:
            self.pid = launcher.start(arguments, writing, errors.fileno())
        os.close(writing)

    def wait_ready(self) -> str:
        """Where it listens. Raises Failure when it ends instead."""
        target = ""
        for line in self._events:
            event = json.loads(line)
            if event["event"] == "listening":
                target = f"{event['host']}:{event['port']}"
            if event["event"] == "ready":
                return target
        raise Failure(f"the server does not start: {self._log.read_text()[-3000:]}")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self._launcher.wait()
        self._events.close()
        return code


@dataclass
class Tally:
    """Counts of a campaign."""

    stores: int = 0
    stores_with_workers: int = 0
    stores_with_limits: int = 0
    lives: int = 0
    endings: dict[str, int] = field(default_factory=dict)
    acknowledged_messages: int = 0
    resent_batches: int = 0
    refused_alterations: int = 0
    deletions: int = 0
    messages_read: int = 0
    messages_lost_unsynced: int = 0
    messages_expired: int = 0
    limits_set: int = 0
    #: Looks at a message that its topic, or light queue, did not keep any more, by the limit.
    hidden_by: dict[str, int] = field(default_factory=dict)
    clock_jumps: int = 0
    keep_latest_jobs: int = 0
    backups_judged: int = 0
    hidden_by_limits_in_backups: int = 0
    checks: int = 0
    #: By kind: messages by what was done with them.
    owned: dict[str, dict[str, int]] = field(default_factory=dict)


#: Of the line that says it, after a run that did not stop in order.
_LOG_END = re.compile(r"did not stop in order: the log ends at (\d+)")


def settings_of(chance: random.Random, *, flush: str) -> dict[str, str]:
    """Small and hasty: rolls, flushes, drops and forgotten producers happen all the time."""
    settings = {
        "store.flush_mode": flush,
        "store.segment_bytes": str(chance.choice((64, 256, 1024)) << 10),
        "store.default_queue_count": "2",
        f"{_OF_STORE}kv_flush_bytes": str(chance.choice((32, 256, 1 << 14)) << 10),
        f"{_OF_STORE}kv_flush_interval_s": str(chance.choice((0.2, 2, 30))),
        f"{_OF_STORE}hot_queue_limit": str(chance.choice((16, 10_000))),
        "store.flush_interval_ms": str(chance.choice((20, 500))),
        f"{CONSTANT}server.puts.puts.REMEMBERED_BATCHES": str(chance.choice((1, 16))),
        f"{CONSTANT}server.puts.puts.REMEMBERED_PRODUCERS": str(chance.choice((1, 4096))),
        f"{CONSTANT}server.app.server.DRAIN_NOTICE_S": "0.01",
        # Also where nothing expires: a clock that jumps must drop nothing.
        "store.delete_when_hours": ",".join(map(str, range(24))),
        f"{_OF_STORE}clean_interval_s": "0.2",
    }
    if chance.random() < 0.4:
        settings |= {
            _RESERVED: str(chance.choice((0.0003, 0.001))),
            f"{_OF_STORE}expiry_margin_s": "60",
        }
    return settings


def _do(stubs: Stubs, request: jobs_pb2.StartJobRequest) -> None:
    """A job of the server, to its end."""
    jobs = jobs_pb2_grpc.JobServiceStub(stubs.channel)
    job = jobs.StartJob(request, timeout=_ANSWER_S)
    for told in jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id=job.job_id), timeout=_ANSWER_S):
        job = told
    if job.status != jobs_pb2.JOB_STATUS_DONE:
        raise Failure(f"the job failed: {job}")


class Lives:
    """A store from its making to its end, many servers long."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        launcher: Launcher,
        tally: Tally,
        left_out: Container[str] = (),
    ) -> None:
        self._directory = directory
        self._chance = random.Random(seed)
        self._launcher = launcher
        self._tally = tally
        self._log = directory / "server.log"
        self._skew = Skew(directory / "skew")
        self._backed_up: list[Model] | None = None
        self._disk: LoopDisk | None = None
        self._root = directory / "data"
        self._settings: dict[str, str] = {}
        #: Bytes of the server's log when the power was lost with puts that were not fsynced.
        self._lost_at: int | None = None
        self._power_lost = threading.Event()
        self._clock_may_move = True
        self._began_s = monotonic()
        self._wrong_since_s: float | None = None
        models = [
            Model(
                f"w{number}",
                [f"w{number}-t{topic}" for topic in range(3)],
                [f"%LMQ%w{number}-l{light}" for light in range(4)],
                f"w{number}-group",
            )
            for number in range(_WORKERS)
        ]
        self._workers = [
            Worker(model, random.Random(f"{seed}/{model.name}"), 3000, left_out) for model in models
        ]
        self._models = models
        self._owners: tuple[Owner, ...] = (
            SharedWorker("s0", random.Random(f"{seed}/shared")),
            TimedWorker("s0", random.Random(f"{seed}/timed")),
            DecidingWorker("s0", random.Random(f"{seed}/decided")),
            LiteWorker("s0", random.Random(f"{seed}/lite"), is_wildcard=False),
            LiteWorker("s0", random.Random(f"{seed}/wild"), is_wildcard=True),
        )
        self._callers: tuple[Worker | Owner, ...] = (*self._workers, *self._owners)

    def run_kills(self, lives: int) -> None:
        """The process is killed, the machine lives on: nothing appended is lost."""
        self._settings = settings_of(self._chance, flush=self._chance.choice(("sync", "async")))
        self._settings["server.backup_to"] = str(self._directory / "backups")
        if self._chance.random() < 0.25:
            self._settings["server.workers"] = "2"
            self._tally.stores_with_workers += 1
        self._run(lives, ("load", "load", "load", "opening", "draining", "stop"))

    def _set_limits(self) -> None:
        """Topics of this store keep less than the log does, as their users say; so do some light
        queues, as the operator says."""
        self._tally.stores_with_limits += 1
        self._clock_may_move = self._chance.random() < 0.5  # without, ages are exact
        hours = float(self._settings.get(_RESERVED, "72"))
        for worker in self._workers:
            worker.limited = worker.model.topics[1:]
            worker.longest_ms = round(hours * 3_600_000)
        if self._chance.random() < 0.5:
            hours = self._chance.choice((0.0003, 0.001, 1.0))
            self._settings["store.light_hours"] = f"w0-l0={hours},w1-l0={hours}"
            for model in self._models:
                model.kept[model.light_queues[0]].change(Limits(time_ms=round(hours * 3_600_000)))

    def run_power_losses(self, lives: int) -> None:
        """The file system ends: what was fsynced is there. Needs root."""
        flush = self._chance.choice(("sync", "sync", "async"))
        self._settings = settings_of(self._chance, flush=flush)
        self._disk = LoopDisk(self._directory / "disk", self._directory / "mount", 600 << 20)
        self._root = self._disk.root
        self._run(lives, ("power", "power", "power", "power opening", "power draining", "stop"))

    def _run(self, lives: int, endings: Sequence[str]) -> None:
        self._tally.stores += 1
        if self._chance.random() < 0.6:
            self._set_limits()
        for _ in range(lives):
            ending = self._chance.choice(endings)
            self._live(ending)
            self._tally.lives += 1
            self._tally.endings[ending] = self._tally.endings.get(ending, 0) + 1
            if self._chance.random() < 0.1 and (self._root / "store.json").exists():
                self._check()
        self._live("stop")
        self._check()

    def _live(self, ending: str) -> None:
        if self._chance.random() < 0.3:
            self._jump()
        if ending.endswith("opening"):
            server = self._start()
            threading.Event().wait(self._chance.random() * 0.25)
            self._kill(server, power=ending.startswith("power"))
            if ending.startswith("power"):
                self._lose_power()
            return
        server = self._start()
        stubs: Stubs | None = None
        try:
            stubs = Stubs(server.wait_ready())
            verdict = judge(
                stubs,
                self._models,
                self._chance,
                cut_at=self._cut_at(),
                wrong_since_s=self._wrong_since_s,
            )
            self._lost_at = None
            self._judge_owners(stubs)
            self._tally.messages_read += verdict.messages
            self._tally.messages_lost_unsynced += verdict.lost
            self._tally.messages_expired += verdict.expired
            for why, count in verdict.hidden.items():
                self._tally.hidden_by[why] = self._tally.hidden_by.get(why, 0) + count
            if verdict.expired and _RESERVED not in self._settings:
                raise Failure(f"{verdict.expired} messages expired within minutes")
            if self._chance.random() < 0.3:
                self._keep_latest(stubs)
            if "server.backup_to" in self._settings and self._chance.random() < 0.1:
                self._back_up(stubs)
            self._load(stubs, server, ending)
        finally:
            if stubs is not None:
                stubs.close()
        self._count()
        if self._backed_up is not None:
            self._judge_backup(self._backed_up)
            self._backed_up = None

    def _judge_owners(self, stubs: Stubs) -> None:
        session = Session(stubs, threading.Event(), threading.Event())
        for owner in self._owners:
            owner.judge(session, may_expire=_RESERVED in self._settings)
            tally = self._tally.owned.setdefault(owner.counted_as, {})
            for what, count in owner.counts.items():
                tally[what] = tally.get(what, 0) + count
            owner.counts.clear()

    def _jump(self) -> None:
        """The clock of servers, the running one included, is set."""
        if not self._clock_may_move:
            return
        skew_s = self._chance.choice(_SKEWS_S)
        if skew_s:
            self._wrong_since_s = self._began_s
        self._skew.set(skew_s)
        self._tally.clock_jumps += 1

    def _back_up(self, stubs: Stubs) -> None:
        """While nobody calls: the backup has what the models have."""
        _do(stubs, jobs_pb2.StartJobRequest(backup=jobs_pb2.BackupJob()))
        self._backed_up = deepcopy(self._models)

    def _keep_latest(self, stubs: Stubs) -> None:
        """While nobody calls. Of topics that keep the latest message of each key."""
        for model in self._models:
            for topic, kept in model.kept.items():
                if kept.limits.latest and topic != model.pending_deletion:
                    _do(
                        stubs,
                        jobs_pb2.StartJobRequest(keep_latest=jobs_pb2.KeepLatestJob(topic=topic)),
                    )
                    check_latest(
                        stubs,
                        model,
                        topic,
                        all_durable=self._settings["store.flush_mode"] == "sync",
                    )
                    self._tally.keep_latest_jobs += 1

    def _judge_backup(self, models: list[Model]) -> None:
        """No server runs. What is restored is a store like any other, and has all it had then."""
        backups = self._directory / "backups"
        place = open_place(str(backups))
        root = self._directory / "restored"
        restore(place, list_backups(place)[0], root)
        server = Server(self._launcher, root, self._settings, self._log, self._skew.path)
        stubs = Stubs(server.wait_ready())
        try:
            verdict = judge(stubs, models, self._chance, wrong_since_s=self._wrong_since_s)
            self._tally.hidden_by_limits_in_backups += verdict.hidden.total()
        finally:
            stubs.close()
        if verdict.expired and _RESERVED not in self._settings:
            raise Failure(f"{verdict.expired} messages of a backup expired within minutes")
        server.send(signal.SIGTERM)
        if code := server.end():
            raise Failure(f"SIGTERM ended the restored store with {code}")
        if faults := [str(each) for each in check_store(root) if each.is_fault]:
            raise Failure(f"kvcq check of the restored store: {faults}")
        shutil.rmtree(root)
        shutil.rmtree(backups)  # named by the clock, which jumps: the newest is not the last
        self._tally.backups_judged += 1

    def _load(self, stubs: Stubs, server: Server, ending: str) -> None:
        stop = threading.Event()
        self._power_lost.clear()
        threads = [
            threading.Thread(target=worker.run, args=(Session(stubs, stop, self._power_lost),))
            for worker in self._callers
        ]
        for thread in threads:
            thread.start()
        stop.wait(self._chance.random() * 0.35 + 0.01)
        if self._chance.random() < 0.2:
            self._jump()
        stop.wait(self._chance.random() * 0.35 + 0.01)
        if ending in ("stop", "draining", "power draining"):
            server.send(signal.SIGTERM)
        if ending.endswith("draining"):
            stop.wait(self._chance.random() * 0.3)
        if ending == "stop":
            code = server.end()
            if code != 0:
                raise Failure(f"SIGTERM ended it with {code}: {self._log.read_text()[-3000:]}")
        else:
            self._kill(server, power=ending.startswith("power"))
        stop.set()
        for thread in threads:
            thread.join(_ANSWER_S)
            if thread.is_alive():
                raise Failure("a call did not end with its server")
        for worker in self._callers:
            if worker.failure is not None:
                raise worker.failure
        if ending.startswith("power"):
            self._lose_power()

    def _lose_power(self) -> None:
        for owner in self._owners:
            owner.power_lost(is_flushed=self._settings["store.flush_mode"] == "sync")

    def _cut_at(self) -> int | None:
        """Where the log ended at the lowest since the power was lost; None: it was not lost, or
        nothing with it. What is appended from there on, by timers that are due say, is new.

        A log that is empty, or was closed in order before, does not say it: it ends where it ends.
        """
        if self._lost_at is None:
            return None
        told = self._log.read_bytes()[self._lost_at :].decode()
        return min((int(end) for end in _LOG_END.findall(told)), default=1 << 62)

    def _start(self) -> Server:
        return Server(self._launcher, self._root, self._settings, self._log, self._skew.path)

    def _kill(self, server: Server, *, power: bool) -> None:
        if power:
            assert self._disk is not None
            self._disk.lose_power(self._chance, self._power_lost)
            if self._settings["store.flush_mode"] == "async" and self._lost_at is None:
                self._lost_at = self._log.stat().st_size
        with suppress(ProcessLookupError):  # it had ended by itself
            server.send(signal.SIGKILL)
        server.end()
        if power:
            assert self._disk is not None
            self._disk.unmount()
            self._disk.mount()

    def _check(self) -> None:
        faults = [str(finding) for finding in check_store(self._root) if finding.is_fault]
        self._tally.checks += 1
        if faults:
            raise Failure(f"kvcq check: {faults}")

    def _count(self) -> None:
        tally = self._tally
        for worker in self._workers:
            tally.acknowledged_messages += worker.acknowledged
            tally.resent_batches += worker.resent
            tally.refused_alterations += worker.refused
            tally.deletions += worker.deleted
            tally.limits_set += worker.limits_set
            worker.acknowledged = worker.resent = worker.refused = worker.deleted = 0
            worker.limits_set = 0

    def keep(self, target: Path) -> None:
        """Copy what is left of the store, for a look at what failed. No server may run."""
        shutil.copytree(self._directory, target, ignore=shutil.ignore_patterns("disk"))

    def close(self) -> None:
        """Nothing is mounted any more. No server may run."""
        if self._disk is not None:
            self._disk.unmount()
