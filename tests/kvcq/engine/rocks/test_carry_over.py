"""Descriptors that run out end no database: all that was taken is there, in files or not."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine, carry_over
from kvcq.engine.rocks import engine as rocks_engine
from kvcq.engine.rocks.carry_over import CarryOver
from kvcq.engine.rocks.opening import close_database
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import EngineFailedError, EngineOutOfDescriptorsError, EngineUnavailableError
from tests.support.descriptors import no_descriptor_left
from tests.support.engines import ALL
from tests.support.memory_engine import MemoryEngine
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from kvcq.engine.protocol import KvEngine, Pair
    from kvcq.engine.rocks.opening import Opened

keys = st.binary(max_size=2)
families = st.sampled_from(DERIVED.names)
changes = st.lists(
    st.one_of(
        st.builds(
            lambda family, key, value: KvBatch(puts={family: [(key, value)]}), families, keys, keys
        ),
        st.builds(lambda family, key: KvBatch(deletes=[(family, key)]), families, keys),
        st.builds(
            lambda family, start, end: KvBatch(delete_ranges=[(family, start, end)]),
            families,
            keys,
            keys,
        ),
    ),
    max_size=40,
)


def all_rows(engine: KvEngine) -> list[list[Pair]]:
    return [engine.scan(family, *ALL) for family in DERIVED.names]


def rows_at(path: Path) -> list[list[Pair]]:
    engine = RocksEngine.open(path, DERIVED)
    found = all_rows(engine)
    engine.close()
    return found


def one(key: bytes) -> KvBatch:
    return KvBatch(puts={"default": [(key, b"value")]})


def fail(engine: RocksEngine) -> None:
    """Its memtables cannot be written out, from now on."""
    engine.write(one(b"\xee"))
    with no_descriptor_left(), pytest.raises(EngineOutOfDescriptorsError):
        engine.flush()


@pytest.mark.slow
@settings(max_examples=20)  # each opens four databases
@given(changes, changes, changes)
def test_all_that_was_in_memory_is_there_and_durable(
    durable: list[KvBatch], in_memory: list[KvBatch], later: list[KvBatch]
) -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as name:
        path, model = Path(name) / "kvcq", MemoryEngine(DERIVED.names)
        engine = RocksEngine.open(path, DERIVED)
        for batch in (*durable, None, *in_memory):
            if batch is None:
                engine.flush()
            else:
                engine.write(batch)
                model.write(batch)
        fail(engine)
        model.write(one(b"\xee"))
        assert all_rows(engine) == all_rows(model)
        with pytest.raises(EngineOutOfDescriptorsError):
            engine.write(one(b"\xef"))
        engine.settle()
        assert all_rows(engine) == all_rows(model)
        copy_open(path, Path(name) / "crashed")
        assert rows_at(Path(name) / "crashed") == all_rows(model)
        for batch in later:
            engine.write(batch)
            model.write(batch)
        engine.close()
        assert rows_at(path) == all_rows(model)


def test_more_than_a_page_of_rows_is_carried_over(tmp_path: Path) -> None:
    rows = [(b"%06d" % number, b"old") for number in range(10_000)]
    new = [(key, b"new") for key, _ in rows[2000:9000]] + [(b"x%06d" % n, b"") for n in range(9000)]
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.write(KvBatch(puts={"default": rows, "index": rows}))
    engine.flush()
    engine.write(KvBatch(delete_ranges=[("default", b"000100", b"009990"), ("index", b"", b"1")]))
    engine.write(KvBatch(puts={"default": new}))
    expected = all_rows(engine)
    fail(engine)
    engine.settle()
    expected[0] = sorted([*expected[0], (b"\xee", b"value")])
    assert all_rows(engine) == expected
    assert not expected[2]
    engine.close()
    assert rows_at(tmp_path / "kvcq") == expected


def test_the_family_that_says_how_far_the_others_go_is_taken_in_last(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.write(KvBatch(puts={family: [(b"k", b"v")] for family in DERIVED.names}))
    with engine._inside("test") as opened:
        found = carry_over.carry_over(tmp_path / "kvcq", DERIVED, opened, tmp_path)
    assert list(found.files) == ["default", "index", "state", "offset"]
    engine.close()


@pytest.mark.parametrize("point", ["open", "fill"])
def test_what_cannot_be_opened_again_at_once_is_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.write(KvBatch(puts={"offset": [(b"k", b"v")]}))
    engine.flush()
    engine.write(KvBatch(deletes=[("offset", b"k")]))
    fail(engine)

    def refuse(*_args: object) -> None:
        text = "IO error: While open a file for appending: Too many open files"
        raise EngineUnavailableError(text) if point == "open" else Exception(text)

    with monkeypatch.context() as patched:
        if point == "open":
            patched.setattr(rocks_engine, "open_writable", refuse)
        else:
            patched.setattr(CarryOver, "apply", refuse)
        for _ in range(3):
            with pytest.raises(EngineUnavailableError):
                engine.settle()
            with pytest.raises(EngineOutOfDescriptorsError):
                engine.get("default", b"\xee")
    engine.settle()
    assert all_rows(engine) == [[(b"\xee", b"value")], [], [], []]
    engine.close()
    assert rows_at(tmp_path / "kvcq") == [[(b"\xee", b"value")], [], [], []]


def test_one_that_is_closed_meanwhile_says_that_not_all_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    fail(engine)

    def refuse(*_args: object) -> None:
        raise EngineUnavailableError("Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(rocks_engine, "open_writable", refuse)
        with pytest.raises(EngineUnavailableError):
            engine.settle()
    with pytest.raises(EngineOutOfDescriptorsError):
        engine.close()
    engine.close()
    assert rows_at(tmp_path / "kvcq") == [[], [], [], []]


def test_a_failure_that_comes_on_top_of_it_stays_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    with monkeypatch.context() as patched:
        fail(engine)

        def broken(_db: object) -> None:
            raise OSError("IO error: Input/output error")

        patched.setattr(engine._durability, "check_writable", broken)
        engine.settle()
        assert engine._carried is None  # not opened again
    assert engine.get("default", b"\xee") == b"value"
    with pytest.raises(EngineOutOfDescriptorsError):  # what RocksDB itself says, in this test
        engine.write(one(b"1"))
    engine.settle()
    engine.write(one(b"1"))
    engine.close()


@pytest.mark.parametrize("is_lack", [True, False])
def test_an_exchange_of_the_filter_whose_closing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_lack: bool
) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.write(one(b"1"))

    def close_and_fail(opened: Opened, *, flushed: bool) -> None:
        close_database(opened, flushed=flushed)
        # As the database tells a failure of its background work.
        raise OSError("Too many open files" if is_lack else "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(rocks_engine, "close_database", close_and_fail)
        if is_lack:
            engine.arm(3600)
        else:
            with pytest.raises(EngineFailedError):
                engine.arm(3600)
    if is_lack:
        assert engine.get("default", b"1") == b"value"
        engine.write(one(b"2"))
    else:  # final
        with pytest.raises(EngineFailedError):
            engine.get("default", b"1")
    engine.close()
