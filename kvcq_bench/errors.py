"""What a run can find, and what can stop it."""

from __future__ import annotations


class BenchError(Exception):
    """Ends a run."""


class ScenarioError(BenchError):
    """A scenario file, or a setting, is wrong. The message names it."""


class NotPossibleHereError(BenchError):
    """The scenario needs something of its target that this one cannot do, such as a restart."""


class CheckFailedError(BenchError):
    """What was read is not what was acknowledged."""


class WrongBodyError(CheckFailedError):
    """A message has another body than was sent."""
