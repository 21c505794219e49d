"""What became of a message: told from the records of the state behind its own, and from the rows
of now. Nothing is kept for it. See docs/trace.md in the root folder.
"""

from store.trace.story import Event, Found, Now, Reader, Standing, Story, Subject, What
from store.trace.traces import Traces

__all__ = ["Event", "Found", "Now", "Reader", "Standing", "Story", "Subject", "Traces", "What"]
