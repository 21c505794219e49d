"""server/settings/sources.py: where settings come from, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcq.opening import open_store
from server.config import ServerConfig
from server.settings import KNOWN, Origin, Settings, Sources, plain_value, toml_value, variable_of
from server.settings.names import RETIRED
from store.config import FlushMode
from store.errors import InvalidArgumentError


def load_config(path: Path | None, flags: dict[str, object]) -> ServerConfig:
    return Sources(path, flags).read().config


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "kvcq.toml"
    path.write_text(text)
    return path


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        '[server]\nport = 9000\nhost = "0.0.0.0"\ninsecure_listen = true\n'
        "[store]\nskip_damaged_records = true\n",
    )
    config = load_config(path, {"server.port": "9001", "store.flush_mode": "sync"})
    assert (config.port, config.host, config.workers) == (9001, "0.0.0.0", 1)
    store = config.store_config(9001)
    assert store.flush_mode is FlushMode.SYNC
    assert store.skip_damaged_records is True
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
        ("server.metrics_port", "70000", "server.metrics_port"),
        ("server.metrics_port", "-1", "server.metrics_port"),
        ("server.metrics_host", "", "server.metrics_host"),
        ("server.data_dir", "", "server.data_dir"),
        ("store.flush_mode", "never", "store.flush_mode"),
        ("store.skip_damaged_records", "perhaps", "store.skip_damaged_records"),
        ("store.store_host", "nowhere:1", "store.store_host"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: str, names: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        load_config(None, {name: value})
    assert refused.value.field == names


@pytest.mark.parametrize("text", ["/a, /b", '["/a", "/b"]', " ['/a', '/b',]"])
def test_a_list_is_taken_as_the_file_has_it_too(text: str) -> None:
    assert load_config(None, {"server.backup_to": text}).backup_to == ("/a", "/b")


@pytest.mark.parametrize("text", ["[/a]", '["/a"', "[1]"])
def test_half_a_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a list of texts"):
        load_config(None, {"server.backup_to": text})


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("store.segment_bytes", "'1G' is not a whole number"),
        ("drain_grace_s", "'1G' is not a number"),
        ("metrics_port", "'1G' is not a whole number"),
        ("store.skip_damaged_records", "'1G' is not true or false"),
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
    settings = Settings.of(ServerConfig(data_dir=tmp_path / "store"))
    assert settings.with_recorded_segments() is settings, "there is no store yet"
    open_store(made.store_config(8081)).close()
    found = settings.with_recorded_segments()
    assert found.config.store_config(8081).segment_bytes == 4 << 20
    assert found.origin("store.segment_bytes") == ("store", str(tmp_path / "store"))
    other = Settings.of(ServerConfig(data_dir=tmp_path / "store", store={"segment_bytes": 8 << 20}))
    assert other.with_recorded_segments() is other, "the store refuses it"


def test_the_environment_wins_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    server, store = "port = 1\nmemory_limit_bytes = 110000000\n", "reserved_hours = 1\n"
    path = _file(tmp_path, f"[server]\n{server}[store]\n{store}")
    settings = Sources(
        path,
        {"server.port": 3, "store.skip_damaged_records": "true"},
        {"server.port": "--port"},
        {"KVCQ_SERVER__PORT": "2", "KVCQ_STORE__RESERVED_HOURS": "2", "HOME": "/", "PATH": ""},
    ).read()
    config = settings.config
    assert (config.port, config.memory_limit_bytes, config.store["reserved_hours"]) == (
        *(3, 110_000_000, 2.0),
    )
    told = {name: str(settings.origin(name)) for name in settings.origins}
    assert told == {
        "server.port": "--port",
        "server.memory_limit_bytes": str(path),
        "store.reserved_hours": "KVCQ_STORE__RESERVED_HOURS",
        "store.skip_damaged_records": "--set store.skip_damaged_records",
    }
    assert settings.origin("server.host") == Origin("default")


@pytest.mark.parametrize("name", KNOWN)
def test_each_setting_can_be_given_in_each_way(tmp_path: Path, name: str) -> None:
    known = KNOWN[name]
    default = Settings.of(ServerConfig()).values()[name]
    given = known.default if default is None else default
    if given is None:
        kinds: tuple[object, ...] = (9464, True, "example.org:8081", Path("some.pem"))
        given = next(one for one in kinds if isinstance(one, known.kind))
    line = f"[{known.table}]\n{known.key} = {toml_value(given)}\n"
    text = str(plain_value(given)).strip("[]")
    others = {"server.tls_cert": "a.pem", "server.tls_key": "b.pem"}  # they need each other
    others.pop(name, None)
    for sources in (
        Sources(_file(tmp_path, line), others),
        Sources(flags=others, environment={variable_of(name): text}),
        Sources(flags={**others, name: text}),
    ):
        settings = sources.read()
        assert settings.values()[name] == given
        assert settings.origin(name).kind != "default"


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("KVCQ_SERVER__PROT", "unknown setting KVCQ_SERVER__PROT; did you mean KVCQ_SERVER__PORT?"),
        ("KVCQ_STOR__PORT", "unknown setting KVCQ_STOR__PORT; did you mean KVCQ_SERVER__PORT?"),
        ("KVCQ_SERVER__QQQ", "unknown setting KVCQ_SERVER__QQQ"),
    ],
)
def test_an_unknown_variable_is_answered_with_the_nearest_one(variable: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        Sources(environment={variable: "1"}).read()
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    "variable",
    # What other commands read, and what Kubernetes sets for services of these names.
    ["KVCQ_SERVER", "KVCQ_SERVER_PORT", "KVCQ_PORT_8081_TCP_ADDR", "KVCQ_SERVICE_HOST", "OTHER__X"],
)
def test_variables_that_are_no_settings_are_left_alone(variable: str) -> None:
    assert Sources(environment={variable: "tcp://10.0.0.1:1"}).read().origins == {}


def test_a_wrong_value_is_told_with_where_it_came_from(tmp_path: Path) -> None:
    path = _file(tmp_path, "[store]\ndisk_full_ratio = 0.5\n")
    with pytest.raises(InvalidArgumentError, match=f"disk_full_ratio: .*, in {path}") as refused:
        Sources(path).read()
    assert refused.value.field == "store.disk_full_ratio"
    with pytest.raises(InvalidArgumentError, match=r"'x' is not a whole .*, in KVCQ_SERVER__PORT"):
        Sources(environment={"KVCQ_SERVER__PORT": "x"}).read()
    with pytest.raises(InvalidArgumentError, match=f"unknown setting server.prt.*, in {path}"):
        Sources(_file(tmp_path, "[server]\nprt = 1\n")).read()


def test_all_that_is_declared_has_a_meaning_and_no_two_share_a_name_of_rocketmq() -> None:
    assert [name for name, known in KNOWN.items() if not known.about.meaning] == []
    theirs = [known.about.rocketmq for known in KNOWN.values() if known.about.rocketmq]
    assert len(theirs) == len(set(theirs)) > 15


def test_metrics_are_served_where_they_have_a_port() -> None:
    assert load_config(None, {}).metrics_port is None
    with_port = load_config(None, {"metrics_port": "9464"})
    assert with_port.metrics_port == 9464
    assert with_port.store_config(1).rocksdb_statistics
    assert not load_config(None, {}).store_config(1).rocksdb_statistics


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_setting_that_became_a_constant_is_told_and_has_no_effect(
    name: str, tmp_path: Path
) -> None:
    table, _, key = name.partition(".")
    path = _file(tmp_path, f"[{table}]\n{key} = 1\n")
    for sources, where in (
        (Sources(path), str(path)),
        (Sources(environment={variable_of(name): "1"}), variable_of(name)),
        (Sources(flags={name: "no such value"}), f"--set {name}"),
    ):
        settings = sources.read()
        assert settings.values() == Sources().read().values()
        assert settings.warnings() == [
            f"{name} is no longer a setting and has no effect; remove it from {where}"
        ]
        assert settings.with_recorded_segments().warnings() == settings.warnings()
    assert name not in KNOWN
