"""The process of a Python client: takes a line of JSON for each piece of work, and answers one.

| line in | line out |
|---|---|
| `{"work": "put_one", "limit_s": 2.0}` | `{"count": …, "seconds": …, "p50_us": …, "p99_us": …}` |
| the same | `{"not_offered": "why"}`, or `{"error": "what"}` |
| end of input | |

A client of any language that does the same can stand here.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from typing import TYPE_CHECKING, Any, Protocol

from tests.peers.values import Durability, NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers.values import Timed


class Worker(Protocol):
    """An object whose methods are pieces of work: a client of a system, or an echo client."""

    def close(self) -> None: ...


def command_of(
    client: Callable[[str, Durability], Worker], address: str, durability: Durability
) -> list[str]:
    """What starts this process with a client of that class."""
    place = f"{client.__module__}:{client.__qualname__}"
    return [sys.executable, "-m", "tests.peers.client", place, address, durability.value]


def answer(client: Worker, line: str) -> dict[str, Any]:
    request = json.loads(line)
    work: Callable[..., Timed] = getattr(client, request.pop("work"))
    try:
        return work(**request).document()
    except NotOfferedError as error:
        return {"not_offered": str(error)}
    except Exception:  # noqa: BLE001 - whatever it is, the other side reports it
        return {"error": traceback.format_exc()}


def main() -> None:
    place, address, durability = sys.argv[1:]
    module, _, name = place.partition(":")
    client = getattr(importlib.import_module(module), name)(address, Durability(durability))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(client, line)) + "\n")
        sys.stdout.flush()
    client.close()


if __name__ == "__main__":
    main()
