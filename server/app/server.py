"""Composition root: builds the server, starts it in order, and stops it in reverse.

1. Listen. Health reports alive, not ready; calls are rejected with the progress of opening.
2. Open the store in a thread, since recovery may take long.
3. Ready: health reports it, and calls are accepted.
4. SIGHUP: reload the settings, and apply those that can change at run time.
5. SIGTERM or SIGINT: health reports not ready, new calls are rejected, long polls and streams end,
running calls have `drain_grace_s`, then they are cancelled.
6. Close the store: everything acknowledged is flushed.

A second signal cancels running calls at once, and the process ends within seconds, if necessary as
if it were killed: see process/last_resort.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from functools import partial
from typing import TYPE_CHECKING

from server.access import (
    Attempts,
    Gatekeeper,
    ReloadedTls,
    has_users,
    http_tls,
    open_users,
    refuse_new_store,
)
from server.app.listening import bind, rpc_server, tls_files
from server.app.service_table import SERVED, SERVICES, Reflection, add_services, fronts_of
from server.app.serving import GROUPS_WITH_SERIES, Serving
from server.app.write_watch import watch_writes
from server.edge import Edge
from server.errors import (
    HttpBindError,
    ServedElsewhereError,
    ServerBindError,
    ServerDrainingError,
    SettingsRefusedError,
)
from server.http import OK, TOO_MANY, UNAUTHORIZED, HttpSites, Site, monitoring_app
from server.metrics import CallMetrics
from server.process import (
    calm_collector,
    fast_loop,
    has_terminal,
    private_bytes,
    tune_allocator,
    until_quiet,
)
from server.services import AdminService, CallService, HealthService
from server.stage import Stage
from server.version import VERSION
from server.workers import call_soon
from store.errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import grpc

    from migration.opening import Opened
    from server.access import Users
    from server.app.listener import Listener, StoreOpener
    from server.app.traces import Tracing
    from server.config import ServerConfig
    from server.fronts import Fronts
    from server.metrics import Surveyed
    from server.observe import Observer
    from server.settings import Reloaded, RunningSettings
    from store.config import StoreConfig

logger = logging.getLogger(__name__)

#: New calls are rejected for this long before the port is closed: clients that have just sent one
#: learn that it was not executed, and use another server.
DRAIN_NOTICE_S = 0.2
#: Topics with metrics of their own, those with most traffic: more series would help no operator.
TOPICS_WITH_SERIES = 50


def run_server(
    settings: RunningSettings,
    open_any: StoreOpener,
    listeners: Sequence[Listener],
    *,
    hurry: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and close.

    `hurry` is called at the second signal. Raises ServerBindError if the port is taken,
    InvalidArgumentError for an unusable certificate, and what `open_any` raises.
    """

    async def run() -> None:
        await Server(settings, open_any, listeners, hurry=hurry).run()

    calm_collector()
    tune_allocator()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(run())


class Server:
    """One run of the server. Created and owned by the event loop's thread."""

    def __init__(
        self,
        settings: RunningSettings,
        open_any: StoreOpener,
        listeners: Sequence[Listener],
        *,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        """`hurry` is called when `stop` is called for the second time.

        Raises InvalidArgumentError if a certificate is unusable, tracing is requested but not
        installed, or users are required for a store that does not exist yet.
        """
        self._settings = settings
        self._on_hurry = hurry
        self._open_any = open_any
        self._listeners = listeners
        self._stage = Stage()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._metrics = CallMetrics(TOPICS_WITH_SERIES, GROUPS_WITH_SERIES)
        if self._config.access:
            refuse_new_store(self._config.data_dir, self._config.key_file)
        self._gatekeeper = Gatekeeper(self._stage) if self._config.access else None
        files = tls_files(self._config)
        self._tls = None if files is None else ReloadedTls(files)
        self._tracing = _tracing_of(self._config)
        self._fronts = fronts_of(self._config, self._tls, self._tracing)
        self._edge = Edge(self._config, self._metrics, self._gatekeeper, private=self._private)
        settings.on_change(self._edge.reconfigure)
        self._serving: Serving | None = None
        self._reloading = asyncio.Lock()
        self._hangups: set[asyncio.Task[None]] = set()
        self._rpc = self._fronts or rpc_server(self._config, self._tracing)
        self._admin_rpc = (
            None if self._config.admin_port is None else rpc_server(self._config, self._tracing)
        )
        #: The administration's port if it is separate; set when it listens.
        self.admin_port: int | None = None
        #: The TLS port if the other port has no TLS; set when it listens.
        self.tls_port: int | None = None
        self.sites = HttpSites()
        self._scrapes = Attempts()
        self._observer: Observer | None = None
        self._add_services()
        self._add_sites()

    @property
    def _config(self) -> ServerConfig:
        return self._settings.config

    async def run(self) -> None:
        """Serve; returns once the store is closed."""
        config = self._config
        if self._admin_rpc is not None and config.admin_port is not None:
            try:
                self.admin_port = bind(
                    self._admin_rpc, config.admin_address, config.admin_port, self._tls
                )
            except ServerBindError as error:
                raise HttpBindError("admin", error.host, error.port, error.reason) from error
            logger.info("administration is served on %s:%d", config.admin_address, self.admin_port)
        # Last: ports that fronts hold are only released below.
        if config.tls_port is None:
            port = bind(self._rpc, config.host, config.port, self._tls)
        else:
            self.tls_port = bind(self._rpc, config.host, config.tls_port, self._tls)
            logger.info("TLS is taken on %s:%d", config.host, self.tls_port)
            port = bind(self._rpc, config.host, config.port, None)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is ignored under nohup
            loop.add_signal_handler(signal.SIGHUP, self._hung_up, has_terminal())
        for server in self._rpc_servers():
            await server.start()
        try:
            await self.sites.start()
            if self._observer is not None:
                self._observer.start()
            for one in self._listeners:
                one.listening(self._config.host, port)
            opened = await self._open(self._config.store_config(port))
            if opened is not None:
                try:
                    await self._serve(opened, port)
                finally:
                    await asyncio.to_thread(opened.store.close)
        finally:
            self._stage.drain()
            await self._stop_rpc(None)
            await self.sites.stop()
            if self._observer is not None:
                await asyncio.to_thread(self._observer.close)
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)
            self._edge.close()
        for one in self._listeners:
            one.stopped()

    def stop(self) -> None:
        """Drain and end `run`; a second call does not wait for running calls."""
        if self._stop.is_set() and not self._hurry.is_set():
            self._hurry.set()
            self._on_hurry()
        self._stop.set()

    async def reload(self) -> Reloaded:
        """Read the settings again, and apply those that can change at run time.

        Raises SettingsRefusedError if they cannot be read or are wrong; the old ones then stay.
        """
        async with self._reloading:
            for one in self._listeners:
                one.reloading()
            try:
                read = await asyncio.to_thread(self._settings.read)
                reloaded = self._settings.take(read)
                for line in read.warnings():
                    logger.warning(line)
            except (StoreError, OSError) as error:
                refused = SettingsRefusedError(error, self._settings.look_command)
                logger.error("%s; to see them: %s", refused, refused.next_command)
                for one in self._listeners:
                    one.reload_refused(refused)
                raise refused from error
            for one in self._listeners:
                one.reloaded(*reloaded)
            return reloaded

    def _hung_up(self, at_terminal: bool) -> None:  # noqa: FBT001 - of a signal handler
        if at_terminal and not has_terminal():
            self.stop()  # the terminal it was started at was closed
            return
        task = asyncio.create_task(self._reload_and_tell())
        self._hangups.add(task)
        task.add_done_callback(self._hangups.discard)

    async def _reload_and_tell(self) -> None:
        with contextlib.suppress(SettingsRefusedError):  # the listeners have reported it
            await self.reload()

    async def _open(self, config: StoreConfig) -> Opened | None:
        """Open the store; None if the server was told to stop meanwhile."""
        loop = asyncio.get_running_loop()

        def progress(step: str, fraction: float) -> None:
            self._stage.report(step, fraction)  # ends the opening when the server drains
            for one in self._listeners:
                loop.call_soon_threadsafe(one.opening, step, fraction)

        opening = asyncio.create_task(asyncio.to_thread(self._open_any, config, progress=progress))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            stopping.cancel()
            return opening.result()
        self._begin_drain()
        try:
            opened = await opening
        except ServerDrainingError:
            return None
        await asyncio.to_thread(opened.store.close)
        return None

    async def _serve(self, opened: Opened, port: int) -> None:
        store = opened.store
        # A roll must not block the event loop while the disk works.
        store.log.create_segments_in_background()
        users: Users | None = None
        if self._gatekeeper is not None:
            users = self._gatekeeper.users = await asyncio.to_thread(
                open_users, store.notes, self._config.data_dir, self._config.key_file
            )
        elif await asyncio.to_thread(has_users, store.notes):
            logger.warning(
                "the store has users, but this server does not check them, so everyone may "
                "do everything. Start it with --access, or set server.access = true"
            )
        serving = Serving(
            opened, self._config, self._stage, self._metrics, self._edge, users, self._fronts
        )
        self._serving = serving
        serving.reconfigure(self._config)  # a reload may have come before
        self._settings.on_change(serving.reconfigure)
        loop = asyncio.get_running_loop()
        store.health.when_failed(lambda: call_soon(loop, self._stage.fail))
        watching = asyncio.create_task(watch_writes(store, self._stage))
        try:
            self._stage.ready()
            serving.jobs.start()
            for one in self._listeners:
                one.ready(self._config.host, port)
            await self._stop.wait()
            self._begin_drain()
            await self._finish_calls()
        finally:
            watching.cancel()
            await asyncio.to_thread(serving.close)

    def _add_services(self) -> None:
        """Add the services from the start; those of the store reject calls until it is open."""

        async def levels() -> Mapping[str, float]:
            assert self._serving is not None
            return await self._serving.levels()

        async def activity() -> Surveyed:
            assert self._serving is not None
            return await self._serving.activity.look()

        def gone(peer: str) -> None:
            if self._serving is not None:
                self._serving.reads.disconnected(peer)

        self._admin = AdminService(
            self._stage, self._metrics, levels, activity, self._settings, self.reload
        )
        always: dict[type, object] = {
            CallService: CallService(self._stage, self._metrics, self._edge, gone),
            AdminService: self._admin,
            HealthService: HealthService(self._stage, SERVICES),
            Reflection: Reflection([each.full_name for each in SERVED.values()]),
        }

        def servicer_of(kind: type) -> Callable[[], object]:
            if kind in always:
                return partial(always.get, kind)

            def give() -> object:
                self._stage.check_open()
                assert self._serving is not None
                return self._serving.services[kind]

            return give

        def elsewhere() -> object:
            assert self.admin_port is not None
            raise ServedElsewhereError(self._config.admin_address, self.admin_port)

        add_services(self._edge, self._rpc, self._admin_rpc, servicer_of, elsewhere)
        if self._tracing is not None:
            for method in self._edge.methods.values():
                method.span = self._tracing.span

    def _add_sites(self) -> None:
        """Add the HTTP sites, which respond from the start until the store is closed."""
        config = self._config
        tls = None if (files := tls_files(config)) is None else http_tls(files)
        if config.metrics_port is not None:
            # Not above: its libraries take a tenth of a second that only metrics are worth.
            from server.observe import Observer

            self._observer = Observer(config, self._stage, self._metrics, lambda: self._serving)
            app = monitoring_app(self._stage, self._observer.text, self._may_scrape)
            self.sites.add(Site("metrics", config.metrics_host, config.metrics_port, app, tls))
        if config.console_port is not None:
            # Not above: as for metrics.
            from server.console import UserViewers, Viewers, console

            viewers = Viewers(may_administer=config.console_admin)
            if self._gatekeeper is not None:
                viewers = UserViewers(self._gatekeeper)
            app = console(
                self._edge,
                self._stage,
                self._metrics,
                self._admin.numbers,
                viewers,
                VERSION,
                names=config.console_names,
            )
            self.sites.add(Site("console", config.console_host, config.console_port, app, tls))

    def _may_scrape(self, address: str, name: str, secret: str) -> int:
        gatekeeper = self._gatekeeper
        if gatekeeper is None or gatekeeper.users is None:
            return OK  # until the store is open, users and names are unknown
        if self._scrapes.wait_s(address, name) > 0:
            return TOO_MANY
        if gatekeeper.user_with(name, secret, "Metrics") is not None:
            self._scrapes.succeeded(address, name)
            return OK
        if name:
            self._scrapes.failed(address, name)
        self._metrics.refused("Metrics", "UNAUTHENTICATED", "UNAUTHENTICATED")
        return UNAUTHORIZED

    def _begin_drain(self) -> None:
        for one in self._listeners:
            one.draining()
        self._stage.drain()

    async def _finish_calls(self) -> None:
        """Reject new calls; wait for running ones, then cancel the rest."""
        hurrying = asyncio.create_task(self._hurry.wait())
        # When gRPC stops, it cancels calls that are arriving, and clients do not repeat those. So
        # for a moment they are admitted, and rejected with UNAVAILABLE.
        await asyncio.wait({hurrying}, timeout=DRAIN_NOTICE_S)
        if not hurrying.done():
            await until_quiet(lambda: self._edge.gate.came)
        finishing = asyncio.create_task(self._stop_rpc(self._config.drain_grace_s))
        await asyncio.wait({finishing, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not finishing.done():
            await self._stop_rpc(None)
        await finishing

    def _private(self) -> int:
        """Private memory of this process and its fronts, in bytes."""
        return private_bytes() + (0 if self._fronts is None else self._fronts.private_bytes())

    def _rpc_servers(self) -> list[grpc.aio.Server | Fronts]:
        return [server for server in (self._rpc, self._admin_rpc) if server is not None]

    async def _stop_rpc(self, grace_s: float | None) -> None:
        await asyncio.gather(*(server.stop(grace_s) for server in self._rpc_servers()))


def _tracing_of(config: ServerConfig) -> Tracing | None:
    """None unless enabled. Raises InvalidArgumentError if it is not installed."""
    if not config.tracing:
        return None
    try:
        from server.app.traces import Tracing  # an extra
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            "server.tracing",
            f"{error.name} is not installed; install it with: pip install 'kvcq[tracing]'",
        ) from error
    tracing = Tracing()
    tracing.mark_log_lines()
    return tracing
