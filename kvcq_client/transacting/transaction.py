"""A transaction as a block of code: committed at its end, rolled back by an exception."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kvcq_client.errors import KvcqError
from kvcq_client.transport import Blocking, blocking

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType
    from typing import Any

    from kvcq_client.calls import Calls
    from kvcq_client.transport import Runner
    from kvcq_client.values import Message

logger = logging.getLogger(__name__)


class AsyncTransaction:
    """A message that is delivered if the block ends, and never if it raises.

    `async with client.transaction(message, group="shop"):` — the message is stored before the block
    begins. Where the commit or the rollback does not reach the server, or the process ends in
    between, a producer of the group is asked later: see `answer_checks`.
    """

    def __init__(self, calls: Calls, message: Message, group: str, immunity_s: float) -> None:
        self._calls = calls
        self._message = message
        self._group = group
        self._immunity_s = immunity_s
        self._id = ""
        self._is_decided = False
        self._is_unwanted = False  # a rollback was asked for, and may have failed

    def __repr__(self) -> str:
        return f"<transaction {self._id or 'that has not begun'} of group {self._group!r}>"

    @property
    def id(self) -> str:
        """The id of the transaction, once it has begun."""
        if not self._id:
            raise RuntimeError("the transaction has not begun: use it in a with block")
        return self._id

    async def commit(self) -> None:
        """Deliver the message now. See `commit_transaction`."""
        self._is_unwanted = False
        await self._calls.commit_transaction(self.id)
        self._is_decided = True

    async def roll_back(self) -> None:
        """Never deliver the message. See `roll_back_transaction`."""
        self._is_unwanted = True
        await self._calls.roll_back_transaction(self.id)
        self._is_decided = True

    async def _begin(self) -> None:
        if self._id:
            raise RuntimeError("the transaction has already begun: create another one")
        self._id = await self._calls.begin_transaction(
            self._message, group=self._group, immunity_s=self._immunity_s
        )

    async def _end(self, error: BaseException | None) -> None:
        if self._is_decided:
            return
        if error is None and not self._is_unwanted:
            await self.commit()
            return
        try:
            await self.roll_back()
        except KvcqError as failure:
            if error is None:
                raise
            # The block's own error counts; the check decides.
            logger.warning("transaction %s was not rolled back: %s", self._id, failure)

    async def __aenter__(self) -> AsyncTransaction:
        await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del kind, traceback
        await self._end(error)


class Transaction(Blocking[AsyncTransaction]):
    """A message that is delivered if the block ends, and never if it raises.

    `with client.transaction(message, group="shop"):` — the message is stored before the block
    begins. Where the commit or the rollback does not reach the server, or the process ends in
    between, a producer of the group is asked later: see `answer_checks`.
    """

    def __init__(self, calls: AsyncTransaction, run: Runner) -> None:
        super().__init__(calls, run)

    def __repr__(self) -> str:
        return repr(self._calls)

    @property
    def id(self) -> str:
        """The id of the transaction, once it has begun."""
        return self._calls.id

    commit = blocking(AsyncTransaction.commit)
    roll_back = blocking(AsyncTransaction.roll_back)

    def __enter__(self) -> Transaction:
        self._wait(self._calls._begin())  # noqa: SLF001 - the other face of the same class
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del kind, traceback
        self._wait(self._calls._end(error))  # noqa: SLF001 - likewise

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        self._run(call)
