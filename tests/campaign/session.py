"""One life of the server, as the workers of a campaign call it.

Every call is made again until its outcome is certain, in the next life if need be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import grpc

from kvcq_client.pb.v1 import (
    kvcq_pb2_grpc,
    lite_topics_pb2_grpc,
    shared_groups_pb2_grpc,
    timers_pb2_grpc,
    transactions_pb2_grpc,
)
from tests.campaign.model import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from threading import Event


DEADLINE_S = 20.0


#: The server did not do it, or cannot say: the same call is made again.
_AGAIN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


class Gone(Exception):
    """No error, but what a campaign is for: the server is not there, is closing, or is broken."""


class Stubs:
    """The services of one life of the server."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(
            target,
            options=[
                ("grpc.enable_retries", 0),
                ("grpc.max_receive_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.messages = kvcq_pb2_grpc.MessageServiceStub(self.channel)
        self.topics = kvcq_pb2_grpc.TopicServiceStub(self.channel)
        self.groups = kvcq_pb2_grpc.GroupServiceStub(self.channel)
        self.shared = shared_groups_pb2_grpc.SharedGroupServiceStub(self.channel)
        self.timers = timers_pb2_grpc.TimerServiceStub(self.channel)
        self.transactions = transactions_pb2_grpc.TransactionServiceStub(self.channel)
        self.lite = lite_topics_pb2_grpc.LiteTopicServiceStub(self.channel)
        self.admin = kvcq_pb2_grpc.AdminServiceStub(self.channel)

    def close(self) -> None:
        self.channel.close()


class Session:
    """One life of the server, as a worker meets it."""

    def __init__(self, stubs: Stubs, stop: Event, power_lost: Event) -> None:
        self.stubs = stubs
        self.stop = stop
        self._power_lost = power_lost

    def call(self, method: Callable[..., Any], request: object, *, once: bool = False) -> Any:  # noqa: ANN401 - the response of the method
        """The response; None with `once` when it is unknown whether it was done.

        Raises Gone when the server is not there, or the power, Refused on any other answer.
        """
        while True:
            try:
                answer = method(request, timeout=DEADLINE_S)
            except grpc.RpcError as error:
                # A disk that is gone is told of in many ways. gRPC itself cancels calls that
                # come in while its server ends.
                if self._power_lost.is_set() or error.code() is grpc.StatusCode.CANCELLED:
                    raise Gone from None
                if error.code() not in _AGAIN:
                    raise Refused(error) from None
                if self.stop.is_set() or not _has_reason(error):
                    raise Gone from None
                if once:
                    return None
            else:
                if self._power_lost.is_set():
                    raise Gone  # nobody has seen this answer
                return answer
            self.stop.wait(0.01)


class Refused(Failure):
    """A definite answer that is not success: a failure, unless the caller expected it."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code()


def _has_reason(error: grpc.RpcError) -> bool:
    """Whether the server itself said it, and goes on."""
    # The stubs of grpc do not say that its metadata are pairs.
    metadata = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    return any(key == "grpc-status-details-bin" for key, _ in metadata)
