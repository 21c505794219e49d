"""The command `kvcq` as a whole: its commands, and what naming one of them costs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from server.cli.main import main
from server.cli.migration.commands import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS = main.list_commands(click.Context(main))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0
    assert done.stdout.startswith("Usage:")


def _leaves(command: click.Command) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _leaves(below)


def test_every_option_takes_its_own_default() -> None:
    """Click checks a default when the option is left out: the command fails each time then."""
    for command in _leaves(main):
        context = click.Context(command)
        for option in command.params:
            default = option.to_info_dict().get("default")
            if default is not None:
                option.type_cast_value(context, default)


def test_help_names_every_command_with_what_it_does() -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    lines = shown[shown.index("Messages:") :].splitlines()
    named = [line for line in lines if line.startswith("  ") and line[2] != " "]
    assert [line.split()[0] for line in named] == COMMANDS
    assert all(len(line.split()) > 3 for line in named)
    assert len(lines) < len(COMMANDS) + 8, "each in a line"


def test_help_of_the_program_imports_no_server_and_no_client() -> None:
    """It took 1.4 s when each command's module was imported for its line."""
    code = (
        "import sys; from click.testing import CliRunner; from server.cli.main import main; "
        "CliRunner().invoke(main, ['--help']); "
        "heavy = ('grpc', 'numpy', 'asyncio', 'kvcq', 'store', 'migration', 'server.app'); "
        "print([name for name in sys.modules if name.partition('.')[0] in heavy])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_command_is_wrong_usage() -> None:
    done = CliRunner().invoke(main, ["nonsense"])
    assert done.exit_code == 2
    assert "nonsense" in done.stderr


def test_an_option_is_not_corrected_to_one_that_means_something_else() -> None:
    """`migrate release --yes` was told: did you mean --files, which removes a database."""
    for words, says in (
        ("migrate release . --yes", "No such option '--yes'.\n"),
        ("put t x --keys k", "Did you mean '--key'?"),
        ("put t x --light q", "Did you mean '--light-queue'?"),
    ):
        done = CliRunner().invoke(main, words.split())
        assert done.exit_code == 2
        assert done.stderr.endswith(says + ("" if says.endswith("\n") else "\n"))


def test_serving_imports_neither_load_generator_nor_spark() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from server.cli.main import main; "
        "CliRunner().invoke(main, ['serve', '--help']); "
        "heavy = ('kvcq_bench', 'migration.spark'); "
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_step_of_a_migration_is_in_one_section_of_its_help() -> None:
    assert sorted(migrate.list_commands(click.Context(migrate))) == sorted(migrate.commands)


def test_help_has_the_whole_first_sentence_of_a_command() -> None:
    shown = CliRunner().invoke(main, ["migrate", "--help"]).stdout
    assert "Remove the queue and index files, which are no longer read." in " ".join(shown.split())
