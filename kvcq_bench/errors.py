"""Errors that a run can find, or that stop it."""

from __future__ import annotations


class BenchError(Exception):
    """Ends a run."""


class ScenarioError(BenchError):
    """A scenario file, or a setting, is invalid. The message names it."""


class NotPossibleHereError(BenchError):
    """The target does not support what the scenario needs, such as a restart."""


class CheckFailedError(BenchError):
    """What was read differs from what was acknowledged."""


class WrongBodyError(CheckFailedError):
    """A message has a different body than was sent."""
