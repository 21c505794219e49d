"""kvcq tran …: list open transactions, and decide them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvcq_client import InvalidArgumentError, KvcqError, NotFoundError, NotPossibleError
from server.cli.online.connection import command_error, connect, server_options
from server.cli.terminal import (
    COUNT,
    CommandError,
    Sections,
    counted,
    print_first,
    print_json,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import OpenTransaction

_DOCUMENT = "transaction_id group topic begun_ms checks next_check_ms"


@click.group(cls=Sections)
def tran() -> None:
    """Manage open transactions: messages that were neither committed nor rolled back.

    The server asks a producer of their group for the decision. After the
    configured number of checks it stops asking, and an operator must decide.
    """


@tran.command("list")
@click.option("--group", type=text, default="", help="Only those of a group of producers.")
@click.option("--given-up", is_flag=True, help="Only those that are no longer checked.")
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Rows to print.")
@server_options
def list_transactions(group: str, given_up: bool, limit: int, server: str, as_json: bool) -> None:
    """List open transactions, the oldest first."""
    with connect(server) as client:
        found = client.open_transactions(group, given_up=given_up, max_transactions=limit + 1)
    columns: dict[str, Callable[[OpenTransaction], object]] = {
        "transaction": lambda one: one.transaction_id,
        "group": lambda one: one.group,
        "topic": lambda one: one.topic,
        "since": lambda one: time_text(one.begun_ms),
        "checks": lambda one: one.checks,
        "next check": lambda one: (
            "given up" if one.next_check_ms is None else time_text(one.next_check_ms)
        ),
    }
    none = "no transaction was given up" if given_up else "no open transactions"
    none += f" of group {group!r}" if group else ""
    print_first(found, limit, _DOCUMENT, columns, none, as_json=as_json)


@tran.command()
@click.argument("transactions", type=text, nargs=-1, required=True, metavar="TRANSACTION...")
@server_options
def commit(transactions: tuple[str, ...], server: str, as_json: bool) -> None:
    """Deliver the messages of the TRANSACTIONs.

    If one cannot be decided, the others still are, and the exit code is 1.
    """
    with connect(server) as client:
        _decide(client.commit_transaction, "committed", transactions, server, as_json=as_json)


@tran.command()
@click.argument("transactions", type=text, nargs=-1, required=True, metavar="TRANSACTION...")
@server_options
def rollback(transactions: tuple[str, ...], server: str, as_json: bool) -> None:
    """Never deliver the messages of the TRANSACTIONs.

    If one cannot be decided, the others still are, and the exit code is 1.
    """
    with connect(server) as client:
        decide = client.roll_back_transaction
        _decide(decide, "rolled back", transactions, server, as_json=as_json)


def _decide(
    decide: Callable[[str], None],
    what: str,
    transactions: tuple[str, ...],
    server: str,
    *,
    as_json: bool,
) -> None:
    """Decide each of them, also after one that cannot be decided. Raises CommandError."""
    decided: list[str] = []
    failed: list[CommandError] = []
    for one in transactions:
        try:
            decide(one)
        except KvcqError as error:
            failed.append(command_error(error, server))
            if not isinstance(error, InvalidArgumentError | NotFoundError | NotPossibleError):
                break  # it is not about this transaction
        else:
            decided.append(one)
    if as_json and decided:
        print_json({"transactions": decided, "outcome": what})
    elif decided:
        say(f"{what} {counted(len(decided), 'transaction')}")
    for each in failed[:-1]:
        say(f"error: {each.message}")
    if failed:
        raise failed[-1]
