"""SQL92 filters: conditions on the properties of messages, in the grammar of RocketMQ.

A text becomes tokens, tokens a condition, and a condition is asked of each message's properties.
"""

from store.reads.sql.filter import MOST_CHARACTERS, SqlFilter
from store.reads.sql.values import ConditionError

__all__ = ["MOST_CHARACTERS", "ConditionError", "SqlFilter"]
