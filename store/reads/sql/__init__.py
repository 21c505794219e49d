"""SQL92 filters: conditions on the properties of messages, in RocketMQ's grammar.

Text is parsed into tokens, tokens into a condition, and the condition is evaluated on each
message's properties.
"""

from store.reads.sql.filter import MOST_CHARACTERS, SqlFilter
from store.reads.sql.values import ConditionError

__all__ = ["MOST_CHARACTERS", "ConditionError", "SqlFilter"]
