"""A worker with a shared group on lite topics: what SharedWorker does, over a few of them.

What the group has done and not done is judged as there. Lite topics end after a month without a
message, or never; no store is as old as that, whatever its clock jumps, so none may end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import lite_topics_pb2
from kvcq_client.pb.v1 import shared_groups_pb2 as shared
from tests.campaign.shared import SharedWorker

if TYPE_CHECKING:
    import random

    from tests.campaign.session import Session

_NAMES = [f"n{number}" for number in range(12)]
_CLIENTS = ("a", "b")
_EXPIRIES_MS = (0, 30 * 24 * 3_600_000)


class LiteWorker(SharedWorker):
    """See Owner."""

    def __init__(self, name: str, chance: random.Random, *, is_wildcard: bool) -> None:
        super().__init__(f"{name}-wild" if is_wildcard else f"{name}-lite", chance)
        self.counted_as = "lite topics, by a wildcard" if is_wildcard else "lite topics"
        self._is_wildcard = is_wildcard
        self._expiry_ms = chance.choice(_EXPIRIES_MS)

    def _make(self, session: Session) -> None:
        stub = session.stubs.lite
        request = lite_topics_pb2.CreateLiteParentRequest(
            topic=self.topic, expiry_ms=self._expiry_ms, queue_count=2
        )
        session.call(stub.CreateLiteParent, request)
        super()._make(session)
        for client in _CLIENTS:
            subscribing = lite_topics_pb2.SyncLiteSubscriptionsRequest(
                group=self.group,
                client_id=client,
                action=lite_topics_pb2.LITE_ACTION_COMPLETE,
                lite_topics=() if self._is_wildcard else _NAMES,
            )
            session.call(stub.SyncLiteSubscriptions, subscribing)

    def _settings(self) -> shared.SharedGroupSettings:
        settings = super()._settings()
        settings.lite.parent = self.topic
        settings.lite.wildcard = self._is_wildcard
        return settings

    def _message(self, body: bytes) -> pb.Message:
        message = super()._message(body)
        message.light_queues.append(f"%LMQ%${self.topic}${self._chance.choice(_NAMES)}")
        return message

    _acknowledging = 0.0  # receives of lite topics acknowledge nothing

    def _receive_request(self, most: int, lease_ms: int, wait_ms: int = 0) -> shared.ReceiveRequest:
        request = super()._receive_request(most, lease_ms, wait_ms)
        request.client_id = self._chance.choice(_CLIENTS)
        return request

    def _queue_of(self, answer: shared.ReceiveResponse, at: int) -> str:
        return f"%LMQ%${self.topic}${answer.lite_topics[at]}"
