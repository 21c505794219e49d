"""A server of S3 in this process: moto's, on a free port."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "kept"


@contextmanager
def s3_server() -> Iterator[str]:
    """Its address, with an empty bucket; the environment leads to it, also that of children."""
    pytest.importorskip("obstore", reason="the s3 extra is not installed")
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    environment = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            make_bucket(address)
            yield address
        finally:
            server.stop()


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[str]:
    """One for all tests that name it; each writes below a name of its own."""
    with s3_server() as address:
        yield address


def make_bucket(address: str) -> None:
    """Empty, also when there was one."""
    import boto3

    client = boto3.client("s3", endpoint_url=address, region_name=os.environ["AWS_REGION"])
    client.create_bucket(Bucket=BUCKET)
