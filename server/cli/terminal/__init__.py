"""What the commands take and show: types of options, tables, JSON, errors, help. It knows no store
and no server.
"""

from server.cli.terminal.bars import Bars
from server.cli.terminal.bodies import body_fields, body_text, plain_body
from server.cli.terminal.output import (
    EXIT_INTERRUPTED,
    EXIT_NOBODY_READS,
    EXIT_REFUSED,
    BadRequestError,
    CannotConnectError,
    CommandError,
    InterruptedCommandError,
    ask,
    camel_case,
    console,
    counted,
    document_of,
    json_option,
    notes,
    print_json,
    print_json_error,
    print_next,
    print_table,
)
from server.cli.terminal.screen import escape, one_line
from server.cli.terminal.sections import Sections
from server.cli.terminal.values import (
    COUNT,
    INT32_MAX,
    INT64_MAX,
    OFFSET,
    QUEUE,
    SIZE,
    SPAN,
    TIME,
    TIMES,
    Whole,
    argument_bytes,
    server_address,
    text,
)
from server.moments import time_text
from server.texts import byte_count, duration

__all__ = [
    "COUNT",
    "EXIT_INTERRUPTED",
    "EXIT_NOBODY_READS",
    "EXIT_REFUSED",
    "INT32_MAX",
    "INT64_MAX",
    "OFFSET",
    "QUEUE",
    "SIZE",
    "SPAN",
    "TIME",
    "TIMES",
    "BadRequestError",
    "Bars",
    "CannotConnectError",
    "CommandError",
    "InterruptedCommandError",
    "Sections",
    "Whole",
    "argument_bytes",
    "ask",
    "body_fields",
    "body_text",
    "byte_count",
    "camel_case",
    "console",
    "counted",
    "document_of",
    "duration",
    "escape",
    "json_option",
    "notes",
    "one_line",
    "plain_body",
    "print_json",
    "print_json_error",
    "print_next",
    "print_table",
    "server_address",
    "text",
    "time_text",
]
