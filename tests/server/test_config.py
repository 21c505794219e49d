"""server/config.py: where settings come from, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcq.opening import open_store
from server.config import ServerConfig, load_config, with_recorded_segments
from store.config import FlushMode
from store.errors import InvalidArgumentError


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "kvcq.toml"
    path.write_text(text)
    return path


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        '[server]\nport = 9000\nhost = "0.0.0.0"\ninsecure_listen = true\n'
        "[store]\ncrc_item = false\n",
    )
    config = load_config(path, {"server.port": "9001", "store.flush_mode": "sync"})
    assert (config.port, config.host, config.worker_threads) == (9001, "0.0.0.0", 8)
    store = config.store_config(9001)
    assert store.flush_mode is FlushMode.SYNC
    assert store.crc_item is False
    assert store.root == Path("data")
    assert store.store_host == ("127.0.0.1", 9001)


@pytest.mark.parametrize(
    ("name", "value", "names"),
    [
        ("store.segment_byte", "1", "store.segment_byte"),
        ("server.prot", "1", "server.prot"),
        ("store.root", "/", "store.root"),
        ("other.thing", "1", "other.thing"),
        ("server.port", "many", "server.port"),
        ("server.port", "70000", "server.port"),
        ("port", "70000", "server.port"),
        ("server.data_dir", "", "server.data_dir"),
        ("store.flush_mode", "never", "store.flush_mode"),
        ("store.crc_item", "perhaps", "store.crc_item"),
        ("store.store_host", "nowhere:1", "store.store_host"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: str, names: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        load_config(None, {name: value})
    assert refused.value.field == names


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("store.segment_bytes", "'1G' is not a whole number"),
        ("drain_grace_s", "'1G' is not a number"),
        ("store.crc_item", "'1G' is not true or false"),
        ("store.reclaim_unexpired", "'1G' is not true or false"),
        ("store.flush_mode", "'1G' is not one of async, sync"),
        ("store.delete_when_hours", "'1G' is not a list of whole numbers"),
    ],
)
def test_what_is_of_another_kind_is_said_in_plain_words(name: str, rule: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rule):
        load_config(None, {name: "1G"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("store.segment_byte", "unknown setting store.segment_byte; did you mean store.segment_b"),
        ("server.segment_bytes", "unknown setting server.segment_bytes; did you mean store.segm"),
        ("prot", "unknown setting prot; did you mean server.port?"),
        ("other.port", "unknown setting other.port; did you mean server.port?"),
        ("store.foo", "unknown setting store.foo"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(name: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        load_config(None, {name: "1"})
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("store.flush_interval_ms", "0", ": 0 is not a whole number from 1 to 86400000 ms"),
        ("store.reserved_hours", "0", ": 0.0 is not a number from 0.000001 to 876000 hours"),
        ("server.drain_grace_s", "-1", ": -1.0 is not a number from 0 to 86400 s"),
        ("server.max_receive_bytes", "1", ": 1 is not a whole number from 65536 to 2147483647 byt"),
        ("store.disk_full_ratio", "2", ": 2.0 is not a number from 0.001 to 1"),
    ],
)
def test_bounds_are_told_with_their_unit(name: str, value: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        load_config(None, {name: value}).store_config(1)
    assert str(refused.value).startswith(name + says)


@pytest.mark.parametrize(
    "text", ["[sever]\nport = 1\n", "port = 1\n", "[server\n", "[server]\nport = 1.5\n"]
)
def test_a_file_that_says_something_unknown_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        load_config(_file(tmp_path, text), {})


def test_lists_and_hosts_can_be_text() -> None:
    config = load_config(
        None, {"store.delete_when_hours": "3,4", "store.store_host": "[2001:db8::1]:99"}
    )
    assert config.store["delete_when_hours"] == (3, 4)
    assert config.store["store_host"] == ("2001:db8::1", 99)


@pytest.mark.parametrize(
    ("host", "advertised"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3"), ("localhost", "127.0.0.1")],
)
def test_records_name_an_address_that_is_one(host: str, advertised: str) -> None:
    assert ServerConfig(host=host, insecure_listen=True).store_config(8081).store_host == (
        advertised,
        8081,
    )


def test_the_segment_size_of_a_store_is_taken_unless_one_is_given(tmp_path: Path) -> None:
    made = ServerConfig(data_dir=tmp_path / "store", store={"segment_bytes": 4 << 20})
    config = ServerConfig(data_dir=tmp_path / "store")
    assert with_recorded_segments(config) is config, "there is no store yet"
    open_store(made.store_config(8081)).close()
    assert with_recorded_segments(config).store_config(8081).segment_bytes == 4 << 20
    other = ServerConfig(data_dir=tmp_path / "store", store={"segment_bytes": 8 << 20})
    assert with_recorded_segments(other) is other, "the store refuses it"
