"""The audit log: one JSON line for each rejected call, and for each administrative act.

A caller that is rejected repeatedly cannot fill the disk: an identical rejection is logged once a
minute, and others are limited by AT_ONCE. A failed act counts as a rejection there; successful acts
are always logged.

| field       | meaning                                                            |
|-------------|--------------------------------------------------------------------|
| `time`      | UTC, milliseconds                                                  |
| `event`     | `refused`; `done` or `failed` for an act                           |
| `user`      | the access key; for a rejection, as the caller gave it; absent     |
|             | without one                                                        |
| `peer`      | the connection, as gRPC names it                                   |
| `method`    | the API method                                                     |
| `target`    | what an act was done to: names, never a secret or a message        |
| `reason`    | of a rejection or failure: the reason of the error table           |
| `message`   | the same in words                                                  |
| `requestId` | the id of the call                                                 |
| `leftOut`   | earlier rejections and failures without lines, of this caller      |
|             | and of callers that were forgotten                                 |

Lines go to the logger `kvcq.audit`: to a file of their own, or into the server's log.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from server.access.caller import Stranger, current_caller
from server.process import LineLimit, machine_of
from server.workers import CALLER

if TYPE_CHECKING:
    from collections.abc import Sequence

AUDIT = "kvcq.audit"
_logger = logging.getLogger(AUDIT)
_LONGEST = 400
#: Most names in one line; the number of others is added.
_NAMES = 20
#: Equal rejections within this time are one event: a subscription is rejected for each queue of a
#: topic, and retried.
SAME_S = 60.0
_same = LineLimit(1, every_s=SAME_S)
#: Different rejections of one kind and caller that are all written; above that, one a second.
AT_ONCE = 100
_limit = LineLimit(AT_ONCE)


def audit_refusal(method: str, reason: str, message: str, request_id: str) -> None:
    """Log that a caller was not authenticated, or lacks a right."""
    _write_refusal("refused", method, {}, (reason, message), request_id)


def audit_act(
    method: str, target: Sequence[str], request_id: str, failure: tuple[str, str] | None = None
) -> None:
    """Log an administrative act; `failure`: reason and message if it failed."""
    shown = [name[:_LONGEST] for name in target[:_NAMES]]
    if len(target) > _NAMES:
        shown.append(f"and {len(target) - _NAMES} more")
    if failure is None:
        _write("done", method, target=shown, requestId=request_id)
    else:
        _write_refusal("failed", method, {"target": shown}, failure, request_id)


def _write_refusal(
    event: str, method: str, values: dict[str, object], why: tuple[str, str], request_id: str
) -> None:
    """Write the line, unless it exceeds the limit."""
    reason, message = why
    caller = current_caller()
    # A name that was not authenticated is free to choose, so such callers are distinguished by
    # their machine.
    is_known = caller.name and not isinstance(caller, Stranger)
    who = caller.name if is_known else machine_of(CALLER.get())
    repeated = _same.take((who, caller.name, method, reason, message))
    if repeated is None:
        return
    left_out = _limit.take((who, method, reason))
    if left_out is not None:
        left_out += repeated
        values |= {"reason": reason, "message": message[:_LONGEST], "requestId": request_id}
        _write(event, method, **values, **({"leftOut": left_out} if left_out else {}))


def _write(event: str, method: str, **values: object) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line: dict[str, object] = {"time": now, "event": event}
    if user := current_caller().name:
        line["user"] = user
    line |= {"peer": CALLER.get(), "method": method, **values}
    _logger.info("%s", json.dumps(line))
