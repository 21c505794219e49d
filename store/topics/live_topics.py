"""From where in the log on each topic lives, as the metadata says; what was asked is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.topics.remembered import Remembered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.metadata import Metadata


class LiveTopics(Remembered[int | None]):
    """Thread: any. Memory: bounded."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__()
        # Constant after construction.
        self._metadata = metadata

    def get(self, name: str, /) -> int | None:
        """Physical offset from which the topic's records live; None: there is no such topic."""
        return self._remembered(name)

    def _look_up(self, name: str) -> int | None:
        found = self._metadata.topics([name])[0]
        return None if found is None else found.created_offset

    def exist(self, names: Iterable[str]) -> None:
        """They were seen: whoever made them may have been interrupted before saying so."""
        answers = self._answers
        if wrong := [name for name in names if answers.get(name, 0) is None]:
            self.changed(wrong)
