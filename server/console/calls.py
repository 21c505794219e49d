"""Lets pages call the API: the methods that gRPC serves, called in the same process.

A call is limited, counted and rejected like one from the network; its request is not encoded, its
response is.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from server.access import current_caller
from server.edge import inner_context
from server.workers import CALLER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from server.console.viewers import Viewer
    from server.edge import CallGate, Method
    from server.metrics import CallMetrics

M = TypeVar("M", bound=Message)


class ApiCalls:
    """Calls API methods for viewers. Owned by the event loop's thread."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        gate: CallGate,
        metrics: CallMetrics,
        authenticate: Callable[[Viewer], None],
    ) -> None:
        """`methods`: by path; pages name those of kvcq.v1. `authenticate`: of Viewers."""
        self._authenticate = authenticate
        self._methods = {
            path.rpartition("/")[2]: method
            for path, method in methods.items()
            if path.startswith("kvcq.v1.")
        }
        self._gate = gate
        self._metrics = metrics

    def offers(self, method: str) -> bool:
        """Whether this server has the method."""
        return method in self._methods

    async def ask(self, viewer: Viewer, name: str, request: Message, answer: type[M]) -> M:
        """Call the method for the viewer. Raises the error with which the call is rejected."""
        method = self._methods[name]
        peer = f"console:{viewer.name}"
        self._gate.enter(method.kind, peer, viewer.name)
        started = perf_counter()
        CALLER.set(peer)
        try:
            self._authenticate(viewer)
            usage = current_caller().usage
            if usage is None:
                data = await method.handle(request, inner_context(peer), large=False)
            else:
                usage.check()
                usage.begin(peer)
                try:
                    data = await method.handle(request, inner_context(peer), large=False)
                finally:
                    usage.end(peer)
                usage.count(request.ByteSize() + len(data))
        finally:
            self._gate.leave(method.kind, peer, viewer.name)
            self._metrics.ended(method.name, perf_counter() - started)
        assert isinstance(data, bytes), "it came by no front"
        return answer.FromString(data)
