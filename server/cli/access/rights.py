"""kvcq acl …: what users of a server may do."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

import click

from kvcq_client import Right, Role
from server.cli.access.documents import document
from server.cli.online import connect, server_options
from server.cli.terminal import Sections, print_json, print_table, say, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import User


@click.group(cls=Sections)
def acl() -> None:
    """Manage the rights of users of a running server."""


def right_options(command: Callable[..., object]) -> Callable[..., object]:
    """Adds ROLE, --topic and --group, which the command gets as `rights`."""

    @wraps(command)
    def with_rights(
        role: str, topics: tuple[str, ...], groups: tuple[str, ...], **others: object
    ) -> object:
        if not (topics or groups):
            raise click.UsageError("give --topic or --group")
        rights = [
            *(Right(Role(role), topic=pattern) for pattern in topics),
            *(Right(Role(role), group=pattern) for pattern in groups),
        ]
        return command(rights=rights, **others)

    option: Callable[..., object] = with_rights
    for kind, words in (("group", "A group"), ("topic", "A topic, or light queue")):
        option = click.option(
            f"--{kind}",
            f"{kind}s",
            type=text,
            multiple=True,
            metavar="PATTERN",
            help=f"{words}: its name, or a prefix and '*'; may be repeated.",
        )(option)
    return click.argument("role", type=click.Choice([each.value for each in Role]))(option)


@acl.command()
@click.argument("name", type=text)
@right_options
@server_options
def grant(name: str, rights: list[Right], server: str, as_json: bool) -> None:
    """Grant user NAME the right to publish to, subscribe to, or administer topics or groups.

    A consumer needs subscribe on its topics, and on its group to commit offsets.
    """
    with connect(server) as client:
        found = client.access.grant(name, rights)
    _show_rights([found], as_json=as_json)


@acl.command()
@click.argument("name", type=text)
@right_options
@server_options
def revoke(name: str, rights: list[Right], server: str, as_json: bool) -> None:
    """Revoke rights of user NAME exactly as they were granted. Open streams lose them, too."""
    with connect(server) as client:
        before = client.access.user(name)
        missing = [right for right in rights if right not in before.rights]
        found = client.access.revoke(name, rights)
    _show_rights([found], as_json=as_json)
    for right in missing:
        say(
            f"{name} has no right `{_words(right)}`: nothing was revoked",
        )


@acl.command("list")
@click.argument("name", type=text, required=False)
@server_options
def list_rights(name: str | None, server: str, as_json: bool) -> None:
    """List the rights of all users, or of user NAME."""
    with connect(server) as client:
        found = client.access.users() if name is None else [client.access.user(name)]
    _show_rights(found, as_json=as_json)


def _words(right: Right) -> str:
    return f"{right.role.value} on {right.kind} {right.pattern}"


def _show_rights(users: list[User], *, as_json: bool) -> None:
    if as_json:
        print_json([document(each) for each in users])
        return
    rows: list[tuple[str, ...]] = []
    for each in users:
        if each.is_admin:
            rows.append((each.name, "everything", "", ""))
        rows += [(each.name, one.role.value, one.kind, one.pattern) for one in each.rights]
    if rows:
        print_table("", ("user", "may", "on", "name"), rows)
    else:
        say("no rights")
