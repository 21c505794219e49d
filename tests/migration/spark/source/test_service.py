"""migration/spark/source/service.py: how a task reaches a service that asks who it is."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from kvcq_client import PermissionDeniedError
from migration.spark.errors import SourceOptionError
from migration.spark.source.options import Options
from migration.spark.source.service import parse_service
from tests.support.certificates import Authority
from tests.support.server_process import ServerProcess
from tests.support.users import add_users, secret_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def test_a_task_goes_over_tls_as_a_user(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    cert, key = authority.issue()
    add_users(tmp_path / "store", {"spark": ["subscribe topic a*"]}, segment_bytes=4194304)
    secret = tmp_path / "secret"
    secret.write_text(secret_of("spark") + "\n")
    flags = ("--access", "--tls-cert", str(cert), "--tls-key", str(key))
    with ServerProcess(tmp_path / "store", *flags) as server:
        server.wait_for("ready")
        given = {
            "server": server.target,
            "TLSCA": str(authority.ca),
            "accessKey": "spark",
            "secretFile": str(secret),
        }
        options = Options(given)
        service = parse_service(options)
        options.refuse_others()
        assert secret_of("spark") not in repr(service)
        assert secret_of("spark").encode() not in pickle.dumps(service)
        with pickle.loads(pickle.dumps(service)).connect() as client:
            assert [topic.name for topic in client.topics("a")] == []
            with pytest.raises(PermissionDeniedError):
                client.create_topic("a", 1)
        secret.unlink()
        with pytest.raises(SourceOptionError, match="secretFile"), service.connect():
            pass
        authority.ca.unlink()
        secret.write_text(secret_of("spark"))
        with pytest.raises(SourceOptionError, match="tlsCa"), service.connect():
            pass


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"accessKey": "a"}, "secretFile"),
        ({"secretFile": "f"}, "secretFile"),
        ({"tlsCert": "c"}, "tlsKey"),
        ({"tls": "perhaps"}, "tls"),
    ],
)
def test_halves_are_refused(given: dict[str, str], option: str) -> None:
    with pytest.raises(SourceOptionError, match=option):
        parse_service(Options({"server": "127.0.0.1:8081", **given}))


def test_nothing_is_asked_for_by_default() -> None:
    service = parse_service(Options({"server": "127.0.0.1:8081"}))
    assert (service.tls, service.access_key) == (None, None)
    assert parse_service(Options({"server": "h:1", "tls": "true"})).tls is not None
