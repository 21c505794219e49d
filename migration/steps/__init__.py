"""The steps of a migration: takeover, and the steps and jobs of an open store."""

from migration.steps.adopting import adopt
from migration.steps.giving_back import give_back, waits_here
from migration.steps.live import LiveMigration
from migration.steps.verify import KEY_EVERY

__all__ = [
    "KEY_EVERY",
    "LiveMigration",
    "adopt",
    "give_back",
    "waits_here",
]
