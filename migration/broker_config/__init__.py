"""The content of a RocketMQ broker's `config/`: topics, groups, committed offsets; read and written
back.

A broker stores them in one of several forms, by its settings, and files of earlier forms stay.
`tables.py` defines a table, `attributes.py` attributes of topics and groups, `group_rows.py` the
settings of groups; `json_files.py` and `databases.py` read and write tables, `choice.py` determines
which of them the broker uses, `reading.py` and `back.py` use all of that. It uses no other part of
the migration.
"""

from migration.broker_config.attributes import lite_group_of
from migration.broker_config.back import WrittenBack, write_back
from migration.broker_config.broker_conf import read_properties, reclaims_unexpired
from migration.broker_config.group_rows import settings_of
from migration.broker_config.json_files import delivered_offsets, write_delivered_offsets
from migration.broker_config.reading import (
    BrokerConfig,
    ConfigFound,
    GroupOffset,
    is_own_topic,
    read_config,
)
from migration.broker_config.tables import TAKEN_GROUP

__all__ = [
    "TAKEN_GROUP",
    "BrokerConfig",
    "ConfigFound",
    "GroupOffset",
    "WrittenBack",
    "delivered_offsets",
    "is_own_topic",
    "lite_group_of",
    "read_config",
    "read_properties",
    "reclaims_unexpired",
    "settings_of",
    "write_back",
    "write_delivered_offsets",
]
