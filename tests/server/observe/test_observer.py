"""server/observe/observer.py: what a live server tells Prometheus."""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from typing import TYPE_CHECKING

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.app import server as server_module
from server.app import serving as serving_module
from server.metrics import activity
from server.observe import observer
from store.config import FlushMode
from store.errors import StoreBusyError
from store.state import STATE_TOPIC
from tests.support.http import get, scrape, url_of
from tests.support.loop_stops import LONGEST_STOP_S, watched_server
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served

BODY = b"x" * 100


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "CACHE_S", 0.0)
    monkeypatch.setattr(activity, "CACHE_S", 0.0)


def _batch(topic: str, count: int) -> pb.PutBatchRequest:
    return pb.PutBatchRequest(
        messages=[pb.Message(topic=topic, queue_id=0, body=BODY) for _ in range(count)]
    )


async def _use(served: Served) -> None:
    """Something of each kind that has a number."""
    await served.messages.PutBatch(_batch("t", 10))
    await served.messages.Put(pb.PutRequest(message=pb.Message(topic="u", queue_id=0, body=BODY)))
    columns = pb.MessageColumns(topics=["t"], queue_ids=[0] * 5, bodies=[BODY] * 5)
    await served.messages.PutBatch(pb.PutBatchRequest(columns=columns))
    for form in (pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED):
        await served.messages.Pull(pb.PullRequest(topic="t", max_messages=5, form=form))
    position = pb.QueuePosition(topic="t", queue_id=0, offset=6)
    await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=[position]))


async def test_traffic_lags_and_latencies(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0) as served:
        await _use(served)
        samples = await scrape(served)
        assert samples.get("rocketmq_messages_in_total", topic="t") == 15
        assert samples.get("rocketmq_messages_in_total", topic="u") == 1
        assert samples.get("rocketmq_messages_out_total", topic="t") == 10
        sizes = samples.all("rocketmq_throughput_in_total").values()
        state = served.store.pull(STATE_TOPIC, 0, 0, max_messages=100).records
        assert sum(sizes) + sum(map(len, state)) == served.store.log.appended_offset
        assert (samples.get("rocketmq_throughput_out_total", topic="t") or 0) > 1000
        assert samples.get("rocketmq_message_size_count") == 16
        lag = {"consumer_group": "g", "topic": "t"}
        assert samples.get("rocketmq_consumer_lag_messages", **lag) == 9
        assert (samples.get("rocketmq_consumer_lag_latency", **lag) or 0) >= 0
        assert samples.get("rocketmq_topic_number") == 2
        assert samples.get("rocketmq_consumer_group_number") == 1
        put = {"protocol_type": "grpc", "request_code": "PutBatch"}
        assert samples.get("rocketmq_rpc_latency_count", **put) == 2
        assert samples.get("rocketmq_storage_size") == served.store.log.appended_offset
        assert samples.get("rocketmq_broker_permission") == 6
        assert samples.get("kvcq_store_unreadable") == 0
        hits = samples.get("kvcq_rocksdb_block_cache_hits_total", database="kvcq")
        assert hits is not None


async def test_flushes_are_a_histogram(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0, store={"flush_mode": FlushMode.SYNC}) as served:
        await served.messages.PutBatch(_batch("t", 1))
        samples = await scrape(served)
        assert samples.get("kvcq_fsync_seconds_count") == 1
        assert (samples.get("kvcq_fsync_seconds_sum") or 0) > 0
        assert samples.get("rocketmq_storage_flush_behind_bytes") == 0


async def test_prometheus_own_parser_takes_all_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0, metrics_cluster='a"b\\c\n') as served:
        await _use(served)
        _, text = await get(served, "/metrics")
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families) > 50
        for family in families:
            assert family.documentation
            for sample in family.samples:
                if sample.name.startswith("rocketmq_"):
                    assert sample.labels["cluster"] == 'a"b\\c\n'
                    assert sample.labels["node_type"] == "broker"
                    assert sample.labels["node_id"]


async def test_a_light_queue_has_no_series_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0) as served:
        names = [f"%LMQ%{number}" for number in range(50)]
        message = pb.Message(topic="t", queue_id=0, body=BODY, light_queues=names)
        await served.messages.Put(pb.PutRequest(message=message))
        for name in names:
            await served.messages.Pull(pb.PullRequest(topic=name))
        offsets = [pb.QueuePosition(topic=name) for name in names]
        await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=offsets))
        samples = await scrape(served)
        assert samples.get("rocketmq_messages_out_total", topic="%LMQ%") == 50
        assert (
            samples.get("rocketmq_consumer_lag_messages", consumer_group="g", topic="%LMQ%") == 50
        )
        assert samples.get("rocketmq_lmq_number") == 50
        assert "%LMQ%7" not in samples.text


async def test_only_so_many_topics_have_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "TOPICS_WITH_SERIES", 3)
    async with serving(tmp_path, metrics_port=0) as served:
        for number in range(10):
            await served.messages.PutBatch(_batch(f"t{number}", 1))
        samples = await scrape(served)
        found = samples.all("rocketmq_messages_in_total")
        assert len(found) == 4
        assert samples.get("rocketmq_messages_in_total", topic="") == 7
        assert sum(found.values()) == 10


async def test_scrapes_at_the_same_time_share_one_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, metrics_port=0) as served:
        asked = 0
        statistics = served.store.statistics

        def counted() -> dict[str, float]:
            nonlocal asked
            asked += 1
            return statistics()

        monkeypatch.setattr(served.store, "statistics", counted)
        monkeypatch.setattr(observer, "CACHE_S", 3600.0)
        texts = await asyncio.gather(*(get(served, "/metrics") for _ in range(50)))
        assert asked == 1
        assert len(set(texts)) == 1
        await get(served, "/metrics")
        assert asked == 1


async def test_a_store_that_cannot_be_read_is_no_failed_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, metrics_port=0) as served:

        def busy() -> dict[str, float]:
            raise StoreBusyError("no descriptor is left")

        monkeypatch.setattr(served.store, "statistics", busy)
        with caplog.at_level(logging.WARNING):
            samples = await scrape(served)
        assert samples.get("kvcq_store_unreadable") == 1
        assert samples.get("kvcq_ready") == 1
        assert "no descriptor is left" in caplog.text


async def test_a_closed_store_is_left_out(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0) as served:
        await asyncio.to_thread(served.store.close)
        samples = await scrape(served)
        assert samples.get("kvcq_store_unreadable") is None
        assert samples.get("kvcq_build_info", version="0.1.0") == 1


async def test_streams_are_counted_while_they_are_open(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_port=0) as served:
        assert (await scrape(served)).get("rocketmq_producer_connections") == 0
        stream = served.messages.PutStream()
        await stream.write(pb.PutStreamRequest(batch=_batch("t", 1)))
        await stream.read()
        samples = await scrape(served)
        assert samples.get("rocketmq_producer_connections") == 1
        assert samples.get("rocketmq_consumer_connections") == 0
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out
        assert (await scrape(served)).get("rocketmq_producer_connections") == 0


async def test_faults_are_there_before_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, metrics_port=0) as served:

        def broken(*_: object, **__: object) -> None:
            raise KeyError("a defect")

        assert (await scrape(served)).get("kvcq_errors_total", code="INTERNAL") == 0
        monkeypatch.setattr(served.store.reads, "plan_pull", broken)
        with pytest.raises(grpc.aio.AioRpcError):
            await served.messages.Pull(pb.PullRequest(topic="t"))
        samples = await scrape(served)
        assert samples.get("kvcq_errors_total", code="INTERNAL") == 1
        assert samples.get("kvcq_errors_total", code="DATA_LOSS") == 0
        assert samples.get("kvcq_refusals_total", method="Pull", reason="INTERNAL") == 1
        assert samples.get("kvcq_jobs_total", kind="compact", state="failed") == 0


async def test_a_scrape_does_not_hold_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many names as have series, and many more that have none."""
    monkeypatch.setattr(server_module, "TOPICS_WITH_SERIES", 500)
    monkeypatch.setattr(serving_module, "GROUPS_WITH_SERIES", 500)
    async with watched_server(tmp_path / "store", metrics_port=0) as server:
        store = server.served.store
        names = [f"topic-{number}" for number in range(1000)]
        store.create_topics([(name, 1) for name in names])
        for begin in range(0, 1000, 250):
            messages = [pb.Message(topic=name, body=BODY) for name in names[begin : begin + 250]]
            await server.served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
        for number in range(600):
            store.commit_offsets(f"group-{number}", [("topic-0", 0, 0)])
        url = url_of(server.served, "/metrics")

        def ask() -> None:
            with urllib.request.urlopen(url) as answer:
                assert len(answer.read()) > 100_000

        assert await server.shortest_stop_s(ask) <= LONGEST_STOP_S
