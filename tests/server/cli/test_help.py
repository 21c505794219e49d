"""The help of each command: a sentence for all that it takes, in words of the product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from server.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[click.Context]:
    context = click.Context(command, info_name=" ".join(path) or "kvcq")
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, (*path, name))


CONTEXTS = {context.info_name: context for context in _commands(main)}
#: What click calls a value where nobody says what it is.
_OF_CLICK = ("INTEGER", "FLOAT", "PATH", "RANGE", "%", "UUID")


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_option_says_what_it_takes(name: str) -> None:
    context = CONTEXTS[name]
    assert context.command.help
    for parameter in context.command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith((".", "]")), parameter.help
            shown = parameter.make_metavar(context)
            assert not [word for word in _OF_CLICK if word in shown], (parameter.name, shown)
            assert not parameter.multiple or "may be repeated" in parameter.help, parameter.name
