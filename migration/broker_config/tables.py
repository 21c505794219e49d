"""A table of a broker's configuration, in any of its forms.

| form     | where, below `config/`                                   | a broker with             |
|----------|----------------------------------------------------------|---------------------------|
| JSON     | topics.json, subscriptionGroup.json, consumerOffset.json | storeType=default         |
| LIGHT    | lmqConsumerOffset.json, of all groups                    | that, and enableLmq       |
| SEPARATE | databases topics, subscriptionGroups, consumerOffsets    | storeType=defaultRocksDB  |
| SINGLE   | database metadata, two families for each table           | that, useSingleRocksDB... |
| TABLES   | database rdb, a prefix for each table                    | configManagerVersion=v2   |

Rows: for topics and groups the settings as RocketMQ writes them; for offsets, by `topic@group`, the
offset of each queue id. Source: RocketMQ 5.5, BrokerController and its managers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

#: Separates topic and group in the name of an offset row.
SEPARATOR = "@"
#: The committed offsets of this group record how far the broker's delayed messages were taken over.
#: A release does not write them.
TAKEN_GROUP = "CID_RMQ_SYS_KVCQ_TAKEN"
#: Below the store's directory.
DIRECTORY = "config"
#: A group of a light queue has one offset, whatever the queue id.
LIGHT_QUEUE_ID = 0


class Kind(enum.Enum):
    """What a table contains."""

    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"


class Form(enum.Enum):
    """How a table is stored."""

    JSON = "JSON"
    LIGHT = "JSON, of all groups"
    SEPARATE = "RocksDB"
    SINGLE = "RocksDB, one for all tables"
    TABLES = "RocksDB, second layout"


class Version(enum.Enum):
    """The forms that one version of a broker's configuration managers reads."""

    FILES = frozenset({Form.JSON, Form.LIGHT})
    DATABASES = frozenset({Form.SEPARATE, Form.SINGLE})
    TABLES = frozenset({Form.TABLES})


@dataclass(kw_only=True)
class Table:
    """One table as read from the directory."""

    kind: Kind
    form: Form
    path: str  # the file or the database, below the store's directory
    rows: dict[str, Any] = field(default_factory=dict)
    counter: int = 0  # of its data version; rises with each change
    changed_ms: int = 0  # ms since 1970, of its data version
    used_ms: int = 0  # when the file, or one of the database, was written last

    @property
    def offsets(self) -> int:
        """Number of offsets; 0 for other tables."""
        return sum(map(len, self.rows.values())) if self.kind is Kind.OFFSETS else 0


def last_written_ms(path: Path) -> int:
    """Modification time of the file, or of the newest one in the directory; ms since 1970."""
    paths = list(path.iterdir()) if path.is_dir() else [path]
    return max((each.stat().st_mtime_ns // 1_000_000 for each in paths), default=0)
