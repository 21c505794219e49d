"""The way of messages into the store: one at a time, in batches, numbered, and as a stream.

`Puts` is what the services call, and `Settlements` for what receivers say of their messages. They
take requests from `wire`, and the store as it is open.
"""

from server.puts.durability import Durability, wait_visible
from server.puts.producer_sessions import check_number, name_of
from server.puts.puts import Puts
from server.puts.settlements import Settlements

__all__ = [
    "Durability",
    "Puts",
    "Settlements",
    "check_number",
    "name_of",
    "wait_visible",
]
