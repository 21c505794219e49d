"""Calls on the dead letters of shared groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import checked, whole
from kvcq_client.calls.call_group import CallGroup
from kvcq_client.dead_letters import DeadLetter
from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from kvcq_client.shared_groups import Redriven
from kvcq_client.transport import in_parts, paged
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Dead letters of one request.
_LETTERS_A_CALL = 1000


@checked()
class DeadLetterCalls(CallGroup):
    """Lists dead letters, puts them back where they came from, and deletes them."""

    async def dead_letters(
        self,
        group: str,
        *,
        after: int | None = None,
        max_letters: int | None = None,
        timeout_s: float | None = None,
    ) -> list[DeadLetter]:
        """Dead letters that were neither redriven nor deleted, and are kept; the oldest first.

        Those with offsets above `after`. Raises NotFoundError.
        """
        most = _LETTERS_A_CALL if max_letters is None else min(max_letters, _LETTERS_A_CALL)
        request = pb.ListDeadLettersRequest(group=group, page_size=max(1, most), after=after)
        found: list[DeadLetter] = []
        async for page in paged(self._call, self._shared.ListDeadLetters, request, timeout_s):
            found += [from_wire(DeadLetter, one) for one in page.letters]
            if max_letters is not None and len(found) >= max_letters:
                break
        return found[:max_letters]

    async def redrive(
        self,
        group: str,
        offsets: Sequence[int] = (),
        *,
        max_messages: int | None = None,
        timeout_s: float | None = None,
    ) -> Redriven:
        """Put dead letters of a shared group back into the topics they came from, oldest first.

        `offsets`: their queue offsets in `%DLQ%` and the group's name; empty for all. Each is put
        in the same append that ends its dead letter. `timeout_s` is for each 1,000 messages. Raises
        NotFoundError, NotPossibleError if it is a reader group, and PermissionDeniedError for
        the first one whose topic the caller may not publish to; those before it were put back.
        """
        wanted = [whole("offsets", offset) for offset in offsets]
        redriven = left = 0
        parts = list(in_parts(wanted, _LETTERS_A_CALL)) or [()]
        for part in parts:
            after: int | None = None
            while max_messages is None or redriven < max_messages:
                most = _LETTERS_A_CALL
                if max_messages is not None:
                    most = min(most, max_messages - redriven)
                answer = await self._call(
                    self._shared.Redrive,
                    pb.RedriveRequest(group=group, offsets=part, max_messages=most, after=after),
                    timeout_s,
                )
                redriven += answer.redriven
                left += answer.left
                if answer.complete:
                    break
                after = answer.last  # skip those that were left in place
        return Redriven(redriven, left)

    async def delete_dead_letters(
        self, group: str, offsets: Sequence[int], *, timeout_s: float | None = None
    ) -> int:
        """Delete dead letters, durably; returns how many of them there were.

        `offsets`: as in DeadLetter. 1,000 at a time are deleted together. Raises NotFoundError.
        """
        deleted = 0
        for part in in_parts([whole("offsets", one) for one in offsets], _LETTERS_A_CALL):
            request = pb.DeleteDeadLettersRequest(group=group, offsets=part)
            answer = await self._call(self._shared.DeleteDeadLetters, request, timeout_s)
            deleted += answer.deleted
        return deleted
