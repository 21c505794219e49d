"""kvcq user and kvcq acl: from a new store to users at work over TLS, by commands alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.certificates import Authority
from tests.support.command_line import run_here
from tests.support.server_process import ServerProcess, run_kvcq
from tests.support.until import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

SECRET = b"a-secret-of-the-keeper\n"


class Site:
    """A server with users, and commands that one of them gives."""

    def __init__(self, directory: Path, target: str, ca: Path, server: ServerProcess) -> None:
        self.directory = directory
        self.typed = directory / "typed"  # what callers have, and the server has not
        self.typed.mkdir()
        self.server = server
        self.audit = directory / "audit.jsonl"
        self._target = target
        self._ca = ca
        self.secrets: dict[str, str] = {}

    def run(
        self, user: str | None, *words: str, secret: str | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {"KVCQ_SERVER": self._target, "KVCQ_TLS_CA": str(self._ca)}
        if user is not None:
            file = self.typed / f"{user}.secret"
            file.write_text(self.secrets[user] if secret is None else secret)
            environment |= {"KVCQ_ACCESS_KEY": user, "KVCQ_SECRET_FILE": str(file)}
        return run_here(*words, stdin=stdin, environment=environment)

    def json(self, user: str, *words: str) -> Any:  # noqa: ANN401 - what the command prints
        result = self.run(user, *words, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def audited(self) -> list[dict[str, Any]]:
        """The lines of the audit that are in its file by now; half of a line is none yet."""
        text = self.audit.read_text() if self.audit.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("users")
    authority = Authority(directory / "pki")
    cert, key = authority.issue()
    data = directory / "store"
    settings = directory / "kvcq.toml"
    settings.write_text(
        f'[server]\ndata_dir = "{data}"\naccess = true\ntls_cert = "{cert}"\ntls_key = "{key}"\n'
        f'log_level = "error"\naudit_file = "{directory / "audit.jsonl"}"\n'
        "[store]\nsegment_bytes = 4194304\n"
    )
    refused = run_kvcq("serve", "--port", "0", "--config", str(settings))
    assert refused.returncode == 2
    assert b"kvcq user add admin --admin --data" in refused.stderr

    made = run_here("user", "add", "ops", "--admin", "--config", str(settings), "--json")
    assert made.returncode == 0, made.stderr
    add = ("user", "add", "ops", "--admin", "--config", str(settings), "--json")
    assert run_here(*add).returncode == 1
    again = run_here(*add, "--if-absent")
    assert (again.returncode, json.loads(again.stdout)) == (0, {"accessKey": "ops"})
    with ServerProcess(data, "--config", str(settings)) as server:
        server.wait_for("ready")
        found = Site(directory, server.target, authority.ca, server)
        found.secrets["ops"] = json.loads(made.stdout)["secret"]
        yield found


def test_users_are_made_given_rights_and_work(site: Site) -> None:
    for name in ("app", "reader"):
        added = site.run("ops", "user", "add", name)
        assert added.returncode == 0, added.stderr
        assert site.run("ops", "user", "add", name).returncode == 1
        again = site.run("ops", "user", "add", name, "--if-absent")
        assert (again.returncode, again.stdout) == (0, b"")
        site.secrets[name] = added.stdout.decode().strip()
        assert len(site.secrets[name]) >= 40
    nothing = site.run("app", "put", "orders", "x")
    assert nothing.returncode == 1
    assert b"kvcq acl grant app publish --topic orders" in nothing.stderr
    site.json("ops", "acl", "grant", "app", "publish", "--topic", "orders*")
    site.json("ops", "acl", "grant", "reader", "subscribe", "--topic", "orders", "--group", "g*")
    assert site.run("app", "put", "orders", "hello").returncode == 0
    consumed = site.run("reader", "consume", "orders", "--reader-group", "g1", "--to-end")
    assert b"hello" in consumed.stdout + site.run("reader", "pull", "orders").stdout
    assert site.run("app", "pull", "orders").returncode == 1
    assert site.run("reader", "topic", "list", "--prefix", "orders").returncode == 1, "no pattern"

    found = site.json("ops", "acl", "list", "reader")
    assert found[0]["rights"] == [
        {"role": "subscribe", "kind": "group", "pattern": "g*"},
        {"role": "subscribe", "kind": "topic", "pattern": "orders"},
    ]
    limited = site.json("ops", "user", "limit", "app", "--messages-per-s", "1000")
    assert limited[0]["limits"]["messagesPerS"] == 1000
    again = site.json("ops", "user", "limit", "app", "--calls", "9")
    assert (again[0]["limits"]["messagesPerS"], again[0]["limits"]["calls"]) == (1000, 9)
    assert [one["user"] for one in site.json("ops", "user", "list")] == ["app", "ops", "reader"]
    table = site.run("ops", "acl", "list").stdout.decode()
    assert "everything" in table
    assert "orders*" in table

    revoked = site.run("ops", "acl", "revoke", "app", "publish", "--topic", "orders")
    assert b"nothing was revoked" in revoked.stderr
    site.json("ops", "acl", "revoke", "app", "publish", "--topic", "orders*")
    assert site.run("app", "put", "orders", "x").returncode == 1


def test_secrets_are_rotated_and_users_removed(site: Site, tmp_path: Path) -> None:
    given = site.run(
        "ops", "user", "add", "short", "--new-secret-file", "-", stdin=b"a-secret-from-a-pipe\n"
    )
    assert given.returncode == 0, given.stderr
    assert b"a-secret" not in given.stdout + given.stderr
    site.secrets["short"] = "a-secret-from-a-pipe"
    file = tmp_path / "secret"
    file.write_text("a-secret-from-a-file\n")
    assert (
        site.run("short", "user", "rotate", "short", "--new-secret-file", str(file)).returncode == 0
    )
    old = site.run("short", "stats")
    assert old.returncode == 1
    assert b"does not match a user" in old.stderr
    assert site.run("short", "stats", secret="a-secret-from-a-file").returncode == 0
    assert site.run("ops", "user", "remove", "short", "--yes").returncode == 0
    assert site.run("short", "stats", secret="a-secret-from-a-file").returncode == 1
    assert site.run("ops", "user", "remove", "short", "--yes").returncode == 1
    assert site.run("ops", "user", "remove", "ops", "--yes").returncode == 1
    weak = site.run("ops", "user", "add", "weak", "--new-secret-file", "-", stdin=b"1234\n")
    assert weak.returncode == 2
    (tmp_path / "empty").write_text("\n")
    for words in (("add", "nosecret"), ("rotate", "short")):
        named = site.run("ops", "user", *words, "--new-secret-file", str(tmp_path / "empty"))
        assert (named.returncode, named.stdout) == (2, b""), "none is generated instead"
        assert b"--new-secret-file: " in named.stderr


def test_commands_say_what_is_missing(site: Site, tmp_path: Path) -> None:
    unknown = site.run("ops", "acl", "grant", "nobody", "publish", "--topic", "x")
    assert (unknown.returncode, b"kvcq user list" in unknown.stderr) == (1, True)
    nobody = site.run(None, "stats")
    assert nobody.returncode == 1
    assert b"--access-key" in nobody.stderr
    for words, said in (
        (("stats", "--access-key", "ops"), b"no secret is given for user ops"),
        (("stats", "--secret-file", str(tmp_path / "none")), b"--secret-file"),
        (("acl", "grant", "app", "publish"), b"--topic or --group"),
        (("acl", "grant", "app", "publish", "--group", "g"), b""),
        (("user", "add", "a b"), b""),
        (("user", "add", "x", "--key-file", "k"), b"--key-file needs --data"),
    ):
        user = "ops" if words[0] != "stats" else None
        result = site.run(user, *words)
        assert result.returncode == 2, (words, result.stderr)
        assert said in result.stderr


def test_a_store_that_is_served_is_not_changed_from_outside(site: Site) -> None:
    refused = run_kvcq("user", "add", "x", "--data", str(site.directory / "store"))
    assert refused.returncode == 1
    assert b"leave out --data" in refused.stderr


def test_no_secret_is_in_files_command_lines_or_logs(site: Site) -> None:
    for name in ("one", "two"):
        site.secrets[name] = site.run("ops", "user", "add", name).stdout.decode().strip()
        site.json("ops", "acl", "grant", name, "publish", "--topic", "orders")
        assert site.run(name, "put", "orders", "x").returncode == 0
    secrets = [secret.encode() for secret in site.secrets.values()]
    assert len(set(secrets)) > 2
    assert not any(secret in b"\n".join(_command_lines()) for secret in secrets)
    files = [file for file in site.directory.rglob("*") if file.is_file()]
    for file in files:
        if file.parent == site.typed:
            continue
        if file.name != "store.key" and file.stat().st_size < 1 << 20:
            data = file.read_bytes()
            assert not any(secret in data for secret in secrets), file
    assert site.audit in files


def _command_lines() -> list[bytes]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes())
        except OSError:
            continue
    return found


def test_the_audit_is_a_file_of_json_lines_that_others_rotate(site: Site) -> None:
    site.secrets["audited"] = site.run("ops", "user", "add", "audited").stdout.decode().strip()
    assert site.run("audited", "put", "orders", "x").returncode == 1
    site.json("ops", "acl", "grant", "audited", "publish", "--topic", "orders")
    wanted = {("done", "CreateUser"), ("done", "Grant"), ("refused", "Put")}

    def told() -> set[tuple[str, str]]:
        """What is told of this user; other tests have granted rights as well."""
        lines = [line for line in site.audited() if "audited" in str(line)]
        return {(line["event"], line["method"]) for line in lines}

    wait_until(lambda: wanted <= told())  # the server waits for no line of it
    rotated = site.directory / "audit.jsonl.1"
    site.audit.rename(rotated)
    before = rotated.read_bytes()
    # Of this test's own user: what was refused within the minute has no line again.
    assert site.run("audited", "topic", "delete", "orders", "--yes").returncode == 1
    wait_until(site.audited)
    [line] = site.audited()
    assert (line["event"], line["method"]) == ("refused", "DeleteTopic")
    assert rotated.read_bytes() == before


def test_a_secret_on_standard_input_is_one_line_of_it(site: Site) -> None:
    """What follows is what the command reads."""
    site.json("ops", "topic", "create", "lines", "--queues", "1")
    lines = [b"%d" % number for number in range(2000)]
    stdin = b"\n".join([site.secrets["ops"].encode(), *lines, b""])
    put = site.run("ops", "put", "lines", "--lines", "--secret-file", "-", stdin=stdin)
    assert put.returncode == 0, put.stderr
    assert b"put 2,000 messages" in put.stderr + put.stdout
    counted = site.json("ops", "topic", "describe", "lines")
    assert counted["queues"][0]["maxOffset"] == 2000


def test_who_may_administer_a_group_need_not_see_the_others(site: Site) -> None:
    assert (
        site.run("ops", "user", "add", "keeper", "--new-secret-file", "-", stdin=SECRET).returncode
        == 0
    )
    site.secrets["keeper"] = SECRET.decode().strip()
    site.json("ops", "topic", "create", "kept", "--queues", "1")
    site.json("ops", "put", "kept", "x")
    consumed = site.run("ops", "consume", "kept", "--reader-group", "billing", "--from", "earliest")
    assert consumed.returncode == 0, consumed.stderr
    site.json("ops", "acl", "grant", "keeper", "admin", "--group", "billing", "--topic", "kept")
    reset = site.run("keeper", "group", "reset", "billing", "kept", "--to", "earliest")
    assert reset.returncode == 0, reset.stderr
    missing = site.run("keeper", "group", "delete", "other", "--yes")
    assert missing.returncode == 1
    deleted = site.run("keeper", "group", "delete", "billing", "--yes")
    assert deleted.returncode == 0, deleted.stderr
