"""Texts of callers over real gRPC: long ones are cut in errors, paths stay in one directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import migration_pb2, migration_pb2_grpc
from server.wire.status import MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, refusal_of, rich_status
from store.errors import OffsetOutOfRangeError, UnknownTopicError
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served

#: What a client takes in all, by gRPC's own default.
METADATA_BYTES = 8 << 10


@given(st.text(max_size=3000).map(lambda text: text * 10))
@pytest.mark.slow
def test_an_error_fits_the_metadata_of_a_response(text: str) -> None:
    for error in (UnknownTopicError(text), OffsetOutOfRangeError(text, 1, 2, 3, 4)):
        refusal = refusal_of(error, "r" * 128)
        assert len(refusal.message.encode()) <= MAX_MESSAGE_BYTES
        assert len(refusal.metadata["topic"].encode()) <= MAX_VALUE_BYTES
        details = rich_status(refusal).SerializeToString()
        percent_encoded = sum(1 if 32 <= byte < 127 else 3 for byte in refusal.message.encode())
        assert len(details) * 4 // 3 + percent_encoded < METADATA_BYTES - 500


@pytest.mark.parametrize("character", ["x", "é", "\U0001f980", "\n"])
async def test_an_error_about_a_long_name_reaches_the_client(
    served: Served, character: str
) -> None:
    name = character * 20_000
    calls: list[Any] = [
        served.messages.Pull(pb.PullRequest(topic=name)),
        served.messages.Query(pb.QueryRequest(topic=name, key="k")),
        served.messages.Get(pb.GetRequest(message_id=name)),
        served.topics.DescribeTopic(pb.DescribeTopicRequest(name=name)),
        served.groups.DeleteGroup(pb.DeleteGroupRequest(group=name)),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert error_info(refused.value).reason in (
            "UNKNOWN_TOPIC",
            "INVALID_ARGUMENT",
            "UNKNOWN_QUEUE",
        )


@pytest.mark.parametrize("number", ["1" * 5000, "²", "-1", "4294967296", ""])
async def test_a_page_token_that_was_never_given_is_refused(served: Served, number: str) -> None:
    request = pb.ListGroupOffsetsRequest(group="g", page_token=f"{number}@t")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.groups.ListGroupOffsets(request)
    assert error_info(refused.value).metadata["field"] == "page_token"


async def test_files_are_taken_from_one_directory_alone(served: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    directory = served.server._config.ingest_directory
    directory.mkdir()
    (directory / "link").symlink_to(secret)
    (directory / "loop").symlink_to(directory / "loop")
    stub = migration_pb2_grpc.MigrationServiceStub(served.channel)
    for path in (
        str(secret),
        "/no/such/file",
        "../../secret",
        "a/../../../secret",
        "link",
        "loop",
        ".",
        "",
        "x" * 300,
        "x/" * 3000,
        "a\0b",
        "a\x1b[2Jb",
        "missing",
    ):
        file = migration_pb2.IngestFilesRequest.File(path=path, family="default")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.IngestFiles(migration_pb2.IngestFilesRequest(files=[file]))
        info = error_info(refused.value)
        assert (info.reason, info.metadata["field"]) == ("INVALID_ARGUMENT", "files[0].path"), path
    status = await stub.GetMigrationStatus(migration_pb2.GetMigrationStatusRequest())
    assert status.ingest_directory == str(directory)
