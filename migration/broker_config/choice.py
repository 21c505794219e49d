"""Determines which tables a broker uses if a directory has more than one of a kind.

A broker's settings decide, but they are not in the directory. So:

1. The forms that were written last are in use; those of another version of its managers have not
changed for longer. If a copy gave all files the same time, RocksDB wins over files, and its second
layout over the first.
2. Among databases as the broker does it: the single database; then rows of JSON files with a higher
data version, which a broker imports at its start; then those of the separate databases likewise.
3. Among JSON files of offsets the one written last. The other is from before `enableLmq` was
changed; the broker does not read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.broker_config.tables import Form, Kind, Table, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Files whose times differ by less may be from one copy, so their times do not decide.
_TELLING_MS = 60_000
#: In order of preference if times do not decide.
_VERSIONS = (Version.TABLES, Version.DATABASES, Version.FILES)


class Choice(NamedTuple):
    """The tables of one kind."""

    #: In the order they are read: a later one's rows win. The first is written back to.
    used: tuple[Table, ...]
    #: The others, each with the reason.
    passed: tuple[tuple[Table, str], ...]


def choose(tables: Sequence[Table]) -> dict[Kind, Choice]:
    """For each kind, the tables that a broker reads, and those that it ignores."""
    version = _version(tables)
    return {kind: _choose(version, [each for each in tables if each.kind is kind]) for kind in Kind}


def _version(tables: Sequence[Table]) -> Version:
    used_ms = {
        version: max((each.used_ms for each in tables if each.form in version.value), default=None)
        for version in _VERSIONS
    }
    there = {version: at for version, at in used_ms.items() if at is not None}
    newest = max(there.values(), default=0)
    return next(
        (version for version, at in there.items() if at >= newest - _TELLING_MS), Version.FILES
    )


def _choose(version: Version, tables: list[Table]) -> Choice:
    by_form = {each.form: each for each in tables}
    used: list[Table] = []
    reasons: dict[Form, str] = {}
    if version is Version.TABLES:
        used = _there(by_form, [Form.TABLES])
    elif version is Version.DATABASES:
        bases = _there(by_form, [Form.SINGLE, Form.SEPARATE])
        used = bases[:1]
        counter = bases[0].counter if bases else -1
        for table in (*_there(by_form, [Form.JSON]), *bases[1:]):
            if table.counter > counter:
                used.append(table)
                counter = table.counter
            else:
                reasons[table.form] = (
                    f"not read: its version {table.counter} is not above {counter} of "
                    f"{used[-1].path}"
                )
    else:
        files = _there(by_form, [Form.LIGHT, Form.JSON])
        if files:
            newest = max(files, key=lambda each: each.used_ms)
            if len(files) == 2 and abs(files[0].used_ms - files[1].used_ms) <= _TELLING_MS:
                newest = max(files, key=lambda each: each.changed_ms)
            used = [newest]
    for table in tables:
        if table.form not in reasons:
            reason = "of another setting than the broker's last one"
            if used and table.form in version.value:
                reason = f"older than {used[0].path}"
            reasons[table.form] = f"not read: {reason}"
    passed = tuple((each, reasons[each.form]) for each in tables if each not in used)
    return Choice(tuple(used), passed)


def _there(by_form: dict[Form, Table], forms: Iterable[Form]) -> list[Table]:
    return [by_form[form] for form in forms if form in by_form]
