"""Transactions over gRPC: begin, decide, list, and the stream for checks of producers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import transactions_pb2 as pb
from kvcq_client.pb.v1 import transactions_pb2_grpc
from server.access import current_caller
from server.errors import AccessError, ServerDrainingError
from server.services.paging import number_of
from server.wire import (
    Budget,
    TooMuchError,
    bounded,
    check_out,
    host_of_peer,
    inline_budget,
    message_in,
    transaction_out,
)
from store.format import check_group
from store.held import Begin, Decide

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from server.access import Caller
    from server.edge import Context
    from server.puts import Puts
    from server.stage import Stage
    from server.transactions import Checks, TransactionWriter
    from server.workers import Pools
    from store.held import Check
    from store.message_store import MessageStore

#: Number on one page.
DEFAULT_TRANSACTIONS = 100
MOST_TRANSACTIONS = 1000
#: Questions that wait to be written to one stream.
_MOST_WAITING = 16


class TransactionService(transactions_pb2_grpc.TransactionServiceServicer):
    """The calls on transactions. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        puts: Puts,
        writer: TransactionWriter,
        checks: Checks,
        pools: Pools,
        stage: Stage,
    ) -> None:
        self._halves = store.halves
        self._puts = puts
        self._writer = writer
        self._checks = checks
        self._pools = pools
        self._stage = stage

    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionResponse:
        born_host = host_of_peer(context.peer())
        given, choose = request.message, self._puts.choose
        try:
            message = message_in(given, born_host, choose, inline_budget())
        except TooMuchError:
            message = await self._pools.changes.run(message_in, given, born_host, choose, Budget())
        begin = Begin(message, request.group, request.immunity_ms)
        transaction_id = await self._writer.decide(begin)
        current_caller().count_messages(1)
        return pb.BeginTransactionResponse(transaction_id=transaction_id)

    async def DecideTransaction(
        self, request: pb.DecideTransactionRequest, context: Context
    ) -> pb.DecideTransactionResponse:
        await self._writer.decide(Decide(request.transaction_id, request.commit))
        return pb.DecideTransactionResponse()

    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> bytes:
        size = bounded("page_size", request.page_size, DEFAULT_TRANSACTIONS, MOST_TRANSACTIONS)
        after = number_of(request.page_token)

        def page() -> pb.ListTransactionsResponse:
            found, goes_on = self._halves.list(
                after, size, group=request.group, given_up=request.given_up
            )
            count = self._halves.count(request.group)
            return pb.ListTransactionsResponse(
                transactions=map(transaction_out, found),
                next_page_token="" if goes_on is None else str(goes_on),
                open=count.open,
                given_up=count.given_up,
                now_ms=self._halves.now_ms(),
            )

        return await self._pools.lookups.encoded(page)

    async def WatchTransactions(
        self, request: pb.WatchTransactionsRequest, context: Context
    ) -> AsyncGenerator[pb.TransactionCheck, None]:
        check_group(request.group)
        stream = _Stream(current_caller())
        stop_listening = self._checks.listen(request.group, stream)
        stop_watching_stage = self._stage.on_change(stream.wake)
        try:
            while True:
                found = await stream.next()
                if self._stage.is_draining:
                    raise ServerDrainingError
                if found is not None:
                    check, sent = found
                    yield check_out(check)
                    # The next one was asked for: this one was written.
                    if not sent.done():
                        sent.set_result(None)
        finally:
            stop_listening()
            stop_watching_stage()
            stream.close()


class _Stream:
    """The stream of a producer that answers checks."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._waiting: list[tuple[Check, asyncio.Future[None]]] = []
        self._woken = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._is_closed = False

    def may_be_asked(self, topic: str) -> bool:
        try:
            self._caller.publishes([topic])
        except AccessError:  # also of a user that is gone: its stream stays open
            return False
        return True

    async def send(self, check: Check) -> None:
        if self._is_closed or len(self._waiting) >= _MOST_WAITING:
            raise ConnectionError
        sent = asyncio.get_running_loop().create_future()
        self._waiting.append((check, sent))
        self._woken.set()
        await sent

    def wake(self) -> None:
        self._woken.set()

    async def next(self) -> tuple[Check, asyncio.Future[None]] | None:
        """The next check to write; None to see whether the server is shutting down."""
        while self._waiting:
            check, sent = self._waiting.pop(0)
            if not sent.done():  # otherwise another one was asked meanwhile
                self._writing = sent
                return check, sent
        self._woken.clear()
        await self._woken.wait()
        return None

    def close(self) -> None:
        self._is_closed = True
        waiting = [sent for _, sent in self._waiting]
        for sent in [*waiting, self._writing]:
            if sent is not None and not sent.done():
                sent.set_exception(ConnectionError())
