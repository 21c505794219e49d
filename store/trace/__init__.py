"""Traces: what became of a message, from the state records after it, and from the current rows.
Nothing extra is stored. See docs/trace.md in the root folder."""

from store.trace.story import Event, Found, Now, Reader, Standing, Story, What
from store.trace.traces import Traces

__all__ = ["Event", "Found", "Now", "Reader", "Standing", "Story", "Traces", "What"]
