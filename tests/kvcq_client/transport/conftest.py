"""Tests that run with gRPC's private calls and without them."""

from __future__ import annotations

import pytest

from kvcq_client.transport import below_grpc


@pytest.fixture(params=["below", "public"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "public":
        monkeypatch.setattr(below_grpc, "cygrpc", None)
