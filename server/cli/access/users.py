"""kvcq user …: users of a server, and their limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcq_client import AlreadyExistsError, UserLimits
from server.cli.access.documents import LIMITS, document
from server.cli.online import command_at, connect, read_secret, server_options
from server.cli.terminal import (
    BadRequestError,
    CommandError,
    Sections,
    Whole,
    ask,
    print_done,
    print_json,
    print_table,
    say,
    text,
    time_text,
)
from server.errors import UserExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcq_client import User

_LIMIT = Whole(0, 1 << 50)

secret_option = click.option(
    "--new-secret-file",
    metavar="FILE",
    help="Read the secret from FILE, or '-' for standard input; by default one is generated and "
    "printed.",
)


def limit_options(command: Callable[..., object]) -> Callable[..., object]:
    for name, words in (
        ("messages-per-s", "Messages put and read per second."),
        ("bytes-per-s", "Bytes of requests and responses per second."),
        ("calls", "Concurrent calls."),
        ("connections", "Connections with calls under way."),
    ):
        command = click.option(f"--{name}", type=_LIMIT, help=f"{words} 0: no limit.")(command)
    return command


@click.group(cls=Sections)
def user() -> None:
    """Manage users of a running server, or add the first user to a stopped store."""


@user.command()
@click.argument("name", type=text)
@click.option("--admin", is_flag=True, help="An administrator, who may do everything.")
@secret_option
@limit_options
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Add the user to this stopped store, not on a server: for the first administrator.",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --data: file with the key that seals secrets.  [default: DIRECTORY.key]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Instead of --data: use the stopped store of a server with this TOML file.",
)
@click.option(
    "--if-absent", is_flag=True, help="If the user already exists, change nothing and succeed."
)
@server_options
def add(
    name: str,
    admin: bool,
    if_absent: bool,
    new_secret_file: str | None,
    data: Path | None,
    key_file: Path | None,
    config_file: Path | None,
    server: str,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Add user NAME, and print its secret. The secret is shown only once.

    NAME is the access key. A new user has no rights: grant some with `kvcq acl grant`.
    """
    secret = read_new_secret(new_secret_file)
    given = {name: value or 0 for name, value in limits.items()}
    try:
        if data is not None or config_file is not None:
            from server.cli.access.stopped import add_to_store  # imports the whole store

            made = add_to_store(
                data, key_file, config_file, name, admin=admin, secret=secret, limits=given
            )
        elif key_file is not None:
            raise click.UsageError("--key-file needs --data")
        else:
            of_user = UserLimits(**_limits(given))
            with connect(server) as client:
                made = client.access.create_user(name, admin=admin, secret=secret, limits=of_user)
    except CommandError as error:
        cause = error.__cause__
        if not (if_absent and isinstance(cause, AlreadyExistsError | UserExistsError)):
            raise
        if as_json:
            print_json({"accessKey": name})
        else:
            say(f"user {name} already exists and was not changed")
        return
    _show_secret(name, made, as_json=as_json, given=secret is not None)
    if not (as_json or admin or data or config_file):
        grant = command_at(server, f"acl grant {name} publish", "--topic", "orders*")
        say(f"the user has no rights yet; to grant some, for example: {grant}")


@user.command()
@click.argument("name", type=text)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
def remove(name: str, yes: bool, server: str, as_json: bool) -> None:
    """Remove user NAME. Its calls and streams end."""
    if not yes:
        ask(f"Remove user {name!r}?", command_at(server, "user remove", "--yes", name=name))
    with connect(server) as client:
        client.access.delete_user(name)
    print_done("removed", name, as_json=as_json)


@user.command()
@click.argument("name", type=text)
@secret_option
@server_options
def rotate(name: str, new_secret_file: str | None, server: str, as_json: bool) -> None:
    """Give user NAME a new secret, and print it. The old one stops working at once."""
    secret = read_new_secret(new_secret_file)
    with connect(server) as client:
        made = client.access.rotate_secret(name, secret)
    _show_secret(name, made, as_json=as_json, given=secret is not None)


@user.command()
@click.argument("name", type=text)
@limit_options
@server_options
def limit(name: str, server: str, as_json: bool, **limits: int | None) -> None:
    """Set limits of user NAME. Limits without an option are not changed."""
    with connect(server) as client:
        before = client.access.user(name).limits
        given = {field: value for field, value in limits.items() if value is not None}
        found = client.access.set_limits(name, replace(before, **_limits(given)))
    _show([found], as_json=as_json)


@user.command("list")
@server_options
def list_users(server: str, as_json: bool) -> None:
    """List all users, with their limits."""
    with connect(server) as client:
        found = client.access.users()
    _show(found, as_json=as_json)


def _limits(given: Mapping[str, int]) -> dict[str, int | None]:
    """The limits as UserLimits has them: there None means no limit, on the command line 0 does."""
    return {name: value or None for name, value in given.items()}


def read_new_secret(file: str | None) -> str | None:
    """The secret in the file; None if no file is given: the server creates one."""
    if file is None:
        return None
    secret = read_secret("--new-secret-file", file)
    if not secret:
        raise BadRequestError(f"--new-secret-file: {file} is empty")
    return secret


def _show_secret(name: str, secret: str, *, as_json: bool, given: bool) -> None:
    if as_json:
        print_json({"accessKey": name} if given else {"accessKey": name, "secret": secret})
    elif given:
        say(f"the secret of user {name} is set")
    else:
        click.echo(secret)
        say(f"the secret of user {name}; it is not shown again")


def _show(users: list[User], *, as_json: bool) -> None:
    if as_json:
        print_json([document(each) for each in users])
        return
    print_table(
        "",
        ("user", "admin", "rights", *(name.replace("_", " ") for name in LIMITS), "created"),
        [
            (
                each.name,
                "yes" if each.is_admin else "",
                len(each.rights),
                *(getattr(each.limits, name) or "" for name in LIMITS),
                time_text(each.created_time_ms),
            )
            for each in users
        ],
    )
