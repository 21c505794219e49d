"""Puts: single messages, batches, numbered batches, and streams of them.

Services call `Puts`, and `Settlements` for acknowledgements and the like. They take requests from
`wire`, and the open store.
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
