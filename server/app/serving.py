"""Everything that exists while the store is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.migrator import Migrator
from server.edge import CallKind
from server.jobs import BackupKind, StoreJobs
from server.metrics import Activity
from server.process import private_bytes
from server.puts import Puts, Settlements
from server.reads import Reads
from server.rocketmq import RocketmqService, Transactions, endpoints_of
from server.services import (
    AccessService,
    GroupService,
    JobService,
    LiteTopicService,
    MessageService,
    MigrationService,
    SharedGroupService,
    TimerService,
    TopicService,
    TransactionService,
)
from server.texts import split_address
from server.transactions import Checks, TransactionWriter
from server.workers import Pools
from store.base import SystemClock

if TYPE_CHECKING:
    from migration.opening import Opened
    from server.access import Users
    from server.config import ServerConfig
    from server.edge import Edge
    from server.fronts import Fronts
    from server.metrics import CallMetrics
    from server.stage import Stage

#: Groups with metrics of their own, those farthest behind: more series would help no operator.
GROUPS_WITH_SERIES = 100


class Serving:
    """Created once the store is open, closed before it. Owned by the event loop's thread."""

    def __init__(
        self,
        opened: Opened,
        config: ServerConfig,
        stage: Stage,
        metrics: CallMetrics,
        edge: Edge,
        users: Users | None,
        fronts: Fronts | None = None,
    ) -> None:
        self._fronts = fronts
        self.store = store = opened.store
        self._gate, memory = edge.gate, edge.memory
        self.puts = Puts(store, stage, metrics)
        self.reads = Reads(store, memory, stage, metrics, self.puts.durability)
        self._max_receive_bytes = config.max_receive_bytes
        self._backup_places = len(config.backup_to)
        self._pools = pools = Pools()
        self.activity = Activity(store, GROUPS_WITH_SERIES, SystemClock().now_ms)
        backup = BackupKind(store, config.backup_to)
        self.jobs = StoreJobs(
            store,
            scrub_period_hours=config.scrub_period_hours,
            keep_latest_hours=config.keep_latest_hours,
            others=[backup],
            migration=None if opened.migration is None else opened.migration.job_list,
        )
        settlements = Settlements(store.groups, pools.settling, self.puts.durability, metrics)
        self.transactions = TransactionWriter(store.halves, self.puts.durability)
        self.checks = Checks(store.halves)
        self.services: dict[type, object] = {
            MessageService: MessageService(store, self.puts, self.reads, pools),
            TopicService: TopicService(
                store, pools, self.puts.forget_topic, self.reads.topic_was_deleted
            ),
            GroupService: GroupService(store, pools),
            SharedGroupService: SharedGroupService(
                store, self.reads, settlements, self.puts.durability, pools, metrics
            ),
            TimerService: TimerService(store, self.puts, pools),
            TransactionService: TransactionService(
                store, self.puts, self.transactions, self.checks, pools, stage
            ),
            LiteTopicService: LiteTopicService(store, pools, self.puts.forget_topic),
            RocketmqService: RocketmqService(
                store,
                self.puts,
                self.reads,
                pools,
                stage,
                settlements,
                Transactions(self.transactions, self.checks),
                endpoints_of(split_address(config.advertised_address or "")),
            ),
            AccessService: AccessService(users, pools),
            JobService: JobService(self.jobs.jobs, pools, stage),
            MigrationService: MigrationService(Migrator(opened), pools, config.ingest_directory),
        }

    def reconfigure(self, config: ServerConfig) -> None:
        """Apply the settings that can change at run time."""
        self.store.reconfigure(config.store_config(config.port))
        self.puts.reconfigured()

    async def levels(self) -> dict[str, float]:
        """Levels for GetStatistics, by name."""
        return {**self.levels_here(), **await self._pools.lookups.run(self.store.statistics)}

    def levels_here(self) -> dict[str, float]:
        """The levels that the event loop owns."""
        return {
            "server.max_receive_bytes": self._max_receive_bytes,
            "server.backup_places": self._backup_places,
            "server.memory_bytes": private_bytes(),
            "server.producers": self.puts.sessions.producer_count,
            "server.cold_readers": self.reads.processes.running,
            "server.cold_reads": self.reads.processes.answered,
            "server.watched_queues": self.reads.growth.watched_queues,
            "server.transaction_listeners": self.checks.listening,
            "server.waiting_receives": self.reads.waiting_receives,
            **({} if self._fronts is None else self._fronts.statistics()),
            **{f"server.{name}": value for name, value in self.jobs.statistics().items()},
        }

    def waiting(self) -> dict[str, int]:
        """Work that waits for a thread, by thread pool."""
        return {**self._pools.waiting(), "bulk": self.puts.waiting, "read": self.reads.waiting}

    def under_way(self) -> dict[str, int]:
        """Running calls, by kind."""
        return {kind.value: self._gate.under_way(kind) for kind in CallKind}

    def close(self) -> None:
        """Wait for work in threads. Blocks."""
        for part in (
            *(self.jobs, self.activity, self.checks, self.transactions, self._pools),
            *(self.reads, self.puts),
        ):
            part.close()
