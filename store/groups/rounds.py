"""Which queue of a topic a receive begins with."""

from __future__ import annotations

from collections import OrderedDict

from store.light_queue import is_light

#: Groups and topics of which it is remembered, about 200 bytes each.
MOST_REMEMBERED = 16_384


class Rounds:
    """Counts receives by group and topic, so that each begins with the queue after the last one's.

    A count of all receives would not do: a worker that receives from two topics in turn would begin
    with every other queue of each, for ever. Not thread-safe. Memory: MOST_REMEMBERED counts; one
    that was forgotten begins anywhere.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()  # the last one used is last
        self._all = 0

    def take(self, group: str, topic: str) -> int:
        """The number of earlier receives. Counts this one."""
        if is_light(topic):
            return 0  # it has a single queue
        count = self._counts.pop((group, topic), self._all)
        self._counts[group, topic] = count + 1
        self._all += 1
        if len(self._counts) > self._most:
            self._counts.popitem(last=False)
        return count

    def give_back(self, group: str, topic: str) -> None:
        """The receive that was counted last did not take place."""
        if not is_light(topic):
            self._counts[group, topic] -= 1
            self._all -= 1
