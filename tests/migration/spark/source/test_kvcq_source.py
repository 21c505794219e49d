"""The source and the sink `kvcq` against a real server over real gRPC."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kvcq_client import Bounds, Client, Message, Queue, RecreatedError
from migration.spark.errors import PipelineError, SourceOptionError
from migration.spark.source import positions
from migration.spark.source.kvcq_sink import _chunks
from migration.spark.source.kvcq_source import KvcqStreamReader, _limited, parse_options
from migration.spark.source.options import Options
from migration.spark.source.service import QueueRange, share_out
from migration.spark.source.stream_places import first_behind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.migration.spark.conftest import RunningService

pytestmark = pytest.mark.spark

_names = itertools.count()


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.target, timeout_s=20) as connected:
        yield connected


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of two queues, new for each test."""
    name = f"topic-{next(_names)}"
    client.create_topic(name, 2)
    return name


def fill(client: Client, topic: str, count: int, **fields: object) -> None:
    messages = [
        Message(topic, b"%05d" % index, queue_id=index % 2, tag="T", keys=(f"k{index}",), **fields)  # type: ignore[arg-type]
        for index in range(count)
    ]
    client.put_numbered(messages, producer_id=f"fill-{next(_names)}", sequence=0)


def read(spark: SparkSession, service: RunningService, **options: object) -> DataFrame:
    reader = spark.read.format("kvcq").option("server", service.target)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def bodies(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row[0]) for row in frame.select("body").collect())


def test_a_batch_reads_every_message_with_its_columns(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    fill(client, topic, 25, light_queues=(f"%LMQ%{topic}",))
    rows = read(spark, service, subscribe=topic, maxRecordsPerPartition=4).collect()
    assert sorted(bytes(row.body) for row in rows) == [b"%05d" % index for index in range(25)]
    places = {(row.queue_id, row.queue_offset) for row in rows}
    assert places == {(index % 2, index // 2) for index in range(25)}
    row = next(row for row in rows if bytes(row.body) == b"00006")
    assert (row.topic, row.tag, row["keys"][-1]) == (topic, "T", "k6")
    # A light queue has offsets of its own.
    light = read(spark, service, subscribe=f"%LMQ%{topic}").orderBy("queue_offset").collect()
    assert [(row.topic, row.queue_id, row.queue_offset) for row in light] == [
        (f"%LMQ%{topic}", 0, offset) for offset in range(25)
    ]
    assert light[6].light_queues == [f"%LMQ%{topic}"]


def test_where_to_begin_and_end(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    fill(client, topic, 20)
    start = json.dumps({topic: {"0": 8, "1": -1}})
    end = json.dumps({topic: {"0": 9, "1": -1}})
    frame = read(spark, service, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert bodies(frame) == [b"00016"]
    assert bodies(read(spark, service, subscribe=topic, startingOffsets="latest")) == []
    times = {
        round(row.timestamp.timestamp() * 1000)
        for row in read(spark, service, subscribe=topic).select("timestamp").collect()
    }
    assert len(bodies(read(spark, service, subscribe=topic, startingTimestamp=min(times)))) == 20
    late: dict[str, object] = {"startingTimestamp": max(times) + 1}
    with pytest.raises(AnalysisException, match="has no message at or after"):
        read(spark, service, subscribe=topic, **late).count()
    late["startingOffsetsByTimestampStrategy"] = "latest"
    assert read(spark, service, subscribe=topic, **late).count() == 0
    by_time = json.dumps({topic: {"0": max(times) + 1, "1": max(times) + 1}})
    frame = read(spark, service, subscribe=topic, endingOffsetsByTimestamp=by_time)
    assert frame.count() == 20


def test_a_pattern_takes_whole_names(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    client.create_topic(f"{topic}-more", 1)
    fill(client, topic, 4)
    client.put(Message(f"{topic}-more", b"more"))
    client.put(Message(f"{topic}-more", b"more"))
    assert read(spark, service, subscribePattern=topic).count() == 4
    assert read(spark, service, subscribePattern=f"{topic}.*").count() == 6
    assert read(spark, service, subscribePattern="no such thing").count() == 0
    with pytest.raises(AnalysisException, match="no topic"):
        read(spark, service, subscribe="unknown").count()


def test_a_pattern_may_be_for_light_queues(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    for name in ("a", "b", "other"):
        fill(client, topic, 2, light_queues=(f"%LMQ%{topic}-{name}",))
    pattern = f"%LMQ%{topic}-[ab]"
    rows = read(spark, service, subscribePattern=pattern).select("topic", "queue_offset").collect()
    assert sorted(map(tuple, rows)) == [
        (f"%LMQ%{topic}-{name}", offset) for name in "ab" for offset in (0, 1)
    ]
    assert read(spark, service, subscribePattern=f"{topic}.*").count() == 6


def test_offsets_that_are_gone_fail_or_are_passed_over(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    fill(client, topic, 10)
    start = json.dumps({topic: {"0": 50, "1": -2}})
    with pytest.raises(AnalysisException, match="messages are gone unread"):
        read(spark, service, subscribe=topic, startingOffsets=start).count()
    frame = read(spark, service, subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    assert frame.count() == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server": "x"}, "exactly one is required"),
        ({"server": "x", "subscribe": "a", "subscribePattern": "b"}, "exactly one is required"),
        ({"server": "x", "subscribePattern": "("}, "unterminated"),
        ({"subscribe": "a"}, "option server: is required"),
        ({"server": "x", "subscribe": "a", "startingOffsets": "[]"}, "is not like"),
        ({"server": "x", "subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "-2 or more"),
        ({"server": "x", "subscribe": "a", "endingOffsets": "earliest"}, "cannot be the earliest"),
        ({"server": "x", "assign": "[]"}, 'not like {"topic"'),
        ({"server": "x", "subscribe": "a", "startingOfsets": "latest"}, "is startingOffsets$"),
        (
            {"server": "x", "subscribe": "a", "maxOffsetsPerPartition": "1"},
            "maxRecordsPerPartition$",
        ),
        (
            {"server": "x", "subscribe": "a", "kafka.bootstrap.servers": "x"},
            "there is subscribe, .* server,",
        ),
        ({"server": "x", "subscribe": "a", "maxRecordsPerPartition": "0"}, "must be 1 or more"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(SourceOptionError, match=message):
        parse_options(options, "earliest")


def test_every_queue_is_named_and_no_other(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    for offsets, message in (
        ({topic: {"0": 1}}, f"does not name queue 1 of '{topic}'"),
        ({topic: {"0": 1, "1": 1, "2": 1}}, f"names queue 2 of '{topic}'"),
        ({"other": {"0": 1, "1": 1}}, "names queue 0 of 'other' and 1 more"),
    ):
        start = json.dumps(offsets)
        with pytest.raises(AnalysisException, match=message):
            read(spark, service, subscribe=topic, startingOffsets=start).count()


def test_single_queues_can_be_read(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    fill(client, topic, 10)
    frame = read(spark, service, assign=json.dumps({topic: [1]}), minPartitions=3)
    assert bodies(frame) == [b"%05d" % index for index in range(1, 10, 2)]
    assert frame.rdd.getNumPartitions() == 3


def test_small_ranges_share_a_part_and_large_ones_are_cut() -> None:
    a, b, c = Queue("a", 0), Queue("a", 1), Queue("b", 0)
    ranges = [QueueRange(a, 3, 8), QueueRange(b, 5, 5), QueueRange(c, 0, 3)]
    assert share_out(ranges, 100) == [(QueueRange(a, 3, 8), QueueRange(c, 0, 3))]
    assert share_out(ranges, 4) == [
        (QueueRange(a, 3, 7),),
        (QueueRange(a, 7, 8), QueueRange(c, 0, 3)),
    ]
    assert [len(part) for part in share_out(ranges, 100, min_parts=3)] == [1, 2, 1]
    assert share_out([QueueRange(b, 5, 5)], 4, min_parts=3) == []


@pytest.mark.parametrize("most", [1, 3, 50, 109, 110, 200])
def test_a_limited_batch_shares_what_it_may_take(most: int) -> None:
    begins = {Queue("a", 0): 5, Queue("a", 1): 0}
    ends = {Queue("a", 0): 15, Queue("a", 1): 90, Queue("new", 0): 10}
    limited = _limited(begins, ends, most)
    taken = sum(limited[queue] - begins.get(queue, 0) for queue in ends)
    assert taken == min(most, 110)
    assert all(begins.get(queue, 0) <= limited[queue] <= ends[queue] for queue in ends)


# --- streams, and the sink --------------------------------------------------------------------


def copy(
    spark: SparkSession,
    service: RunningService,
    source: str,
    target: str,
    state: Path,
    **options: object,
) -> list[int]:
    """Run a stream from one topic to another up to its end; rows of each batch."""
    reader = spark.readStream.format("kvcq").option("server", service.target)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    query = (
        reader.load()
        .writeStream.format("kvcq")
        .option("server", service.target)
        .option("topic", target)
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_copies_a_topic_once_over_restarts(
    spark: SparkSession, service: RunningService, client: Client, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    client.create_topic(target, 2)
    fill(client, topic, 50, properties={"p": "q"})
    state = tmp_path / "state"
    batches = copy(spark, service, topic, target, state, maxOffsetsPerTrigger=20)
    assert batches == [20, 20, 10]
    assert copy(spark, service, topic, target, state) == []
    fill(client, topic, 6, properties={"p": "q"})
    assert copy(spark, service, topic, target, state) == [6]

    # The last batch again, as after a crash before its commit was noted.
    last = max(int(path.name) for path in (state / "commits").glob("[0-9]*"))
    for path in (state / "commits").glob(f"*{last}*"):
        path.unlink()
    copy(spark, service, topic, target, state)
    wanted = sorted([b"%05d" % index for index in (*range(50), *range(6))])
    assert bodies(read(spark, service, subscribe=target)) == wanted
    row = read(spark, service, subscribe=target).where("queue_offset = 3 and queue_id = 1").first()
    assert row is not None
    assert (row.topic, row.tag, row["keys"], row.properties) == (target, "T", ["k7"], {"p": "q"})
    assert bytes(row.body) == b"00007"


def stream_reader(service: RunningService, **options: str) -> KvcqStreamReader:
    from pyspark.sql.types import BinaryType, StructType

    given = {"server": service.target, **options}
    return KvcqStreamReader(parse_options(given, "latest"), StructType().add("body", BinaryType()))


def test_a_stream_meets_new_and_vanished_queues(
    service: RunningService, client: Client, topic: str
) -> None:
    fill(client, topic, 10)
    reader = stream_reader(service, subscribePattern=f"{topic}.*", startingOffsets="latest")
    start = reader.initialOffset()
    # Another process is to find the same: nothing of it is in this reader's memory.
    found = stream_reader(service, subscribePattern=f"{topic}.*")._places.positions(client, start)
    assert found == {Queue(topic, 0): 5, Queue(topic, 1): 5}
    new = f"{topic}-new"
    client.create_topic(new, 1)
    client.put(Message(new, b"first"))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["queues"][new] == {"0": 1}
    (partition,) = reader.partitions(start, end)
    assert partition.value == (QueueRange(Queue(new, 0), 0, 1),)

    client.delete_topic(topic)
    client.put(Message(new, b"second"))
    again = reader.latestOffset(end, ReadAllAvailable())
    assert again["queues"][topic] == {"0": 5, "1": 5}
    with pytest.raises(PipelineError, match="is gone"):
        reader.partitions(end, again)
    lax = stream_reader(service, subscribePattern=f"{topic}.*", failOnDataLoss="false")
    (partition,) = lax.partitions(end, again)
    assert partition.value == (QueueRange(Queue(new, 0), 1, 2),)


def test_a_topic_that_began_anew_fails_a_stream_or_is_read_from_its_first_message(
    service: RunningService, client: Client, topic: str
) -> None:
    other = f"{topic}-other"
    client.create_topic(other, 1)
    fill(client, topic, 20)
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": "latest"}
    strict, lax = (
        stream_reader(service, **options, failOnDataLoss=fail) for fail in ("true", "false")
    )
    start = strict.initialOffset()
    client.delete_topic(topic)
    client.create_topic(topic, 2)
    fill(client, topic, 8)
    # Without an error now, the first ten messages of each queue would be passed over later.
    with pytest.raises(PipelineError, match="has 0 to 4, not 10: messages are gone unread"):
        strict.latestOffset(start, ReadAllAvailable())
    client.put_numbered(
        [Message(other, b"x")] * 100, producer_id=f"fill-{next(_names)}", sequence=0
    )
    read: dict[Queue, list[int]] = {}
    for _ in range(20):
        end = lax.latestOffset(start, ReadMaxRows(10))
        for part in lax.partitions(start, end):
            for queue, first, stop in part.value:
                read.setdefault(queue, []).extend(range(first, stop))
        start = end
    assert read == {
        Queue(topic, 0): [*range(4)],
        Queue(topic, 1): [*range(4)],
        Queue(other, 0): [*range(100)],
    }
    assert lax.latestOffset(start, ReadAllAvailable()) == start


def test_a_topic_that_began_anew_is_noticed_with_more_messages_than_were_read(
    service: RunningService, client: Client, topic: str
) -> None:
    fill(client, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    reader = stream_reader(service, **options)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    client.delete_topic(topic)
    client.create_topic(topic, 2)
    fill(client, topic, 40)
    kept = json.loads(json.dumps(start))  # as the checkpoint has it for another process

    strict = stream_reader(service, **options)
    end = strict.latestOffset(kept, ReadAllAvailable())
    (part,) = strict.partitions(kept, end)
    with pytest.raises(RecreatedError):
        list(strict.read(part))

    lax = stream_reader(service, **options, failOnDataLoss="false", maxRecordsPerPartition="7")
    rows = [
        row for part in lax.partitions(kept, end) for batch in lax.read(part) for row in batch[0]
    ]
    assert sorted(row.as_py() for row in rows) == [b"%05d" % index for index in range(40)]
    fill(client, topic, 2)
    last = lax.latestOffset(json.loads(json.dumps(end)), ReadAllAvailable())
    assert sum(b.num_rows for part in lax.partitions(end, last) for b in lax.read(part)) == 2


def test_an_offset_does_not_grow_with_queues_that_stand_still(
    service: RunningService, client: Client, topic: str
) -> None:
    names = [f"{topic}-{number:03d}" for number in range(200)]
    client.create_topics(dict.fromkeys(names, 1))
    options = {"subscribePattern": f"{topic}-.*", "startingOffsets": "earliest"}

    def put(some: list[str]) -> None:
        for name in some:
            client.put(Message(name, b"x"))

    put(names)
    reader = stream_reader(service, **options)
    start = reader.initialOffset()
    assert start == {"log": 0, "queues": {}, "given_at": {}}
    first = reader.latestOffset(start, ReadAllAvailable())
    assert (
        sum(end - begin for part in reader.partitions(start, first) for _, begin, end in part.value)
        == 200
    )

    # Whatever moved last is named, and nothing else.
    offset = first
    for name in names[:5]:
        put([name])
        offset = reader.latestOffset(offset, ReadAllAvailable())
    assert set(offset["queues"]) <= set(names[:5])
    assert names[4] in offset["queues"]
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset
    client.put(Message(f"{topic}", b"elsewhere"))
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset

    # Another process finds the same places: from what was read, and for what came since.
    put(names[100:103])
    put(names[4:5])
    for later in (stream_reader(service, **options), reader):
        end = later.latestOffset(offset, ReadAllAvailable())
        (part,) = later.partitions(offset, end)
        assert part.value == tuple(
            QueueRange(Queue(name, 0), begin, begin + 1)
            for name, begin in ((names[4], 2), (names[100], 1), (names[101], 1), (names[102], 1))
        )
    assert reader.reportLatestOffset()["messagesBehind"] == 0
    put(names[7:9])
    assert reader.reportLatestOffset()["messagesBehind"] == 2


def test_a_place_in_the_log_is_found_in_every_queue(client: Client, topic: str) -> None:
    places: dict[int, list[int]] = {0: [], 1: []}
    for index in (0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0):
        placed = client.put(Message(topic, b"x", queue_id=index))
        places[index].append(placed.physical_offset)
    bounds = client.offsets([Queue(topic, 0), Queue(topic, 1)])
    for place in (*places[0], *places[1], places[0][-1] + 1):
        for at in (place, place + 1):
            assert first_behind(client, bounds, at, 10) == {
                Queue(topic, number): sum(found < at for found in places[number])
                for number in (0, 1)
            }


def test_a_batch_is_written_once_and_its_errors_are_told(
    spark: SparkSession, service: RunningService, client: Client, topic: str
) -> None:
    rows = [(f"v{index}", index % 2, [f"k{index}"], {"p": "q"}) for index in range(40)]
    columns = "body string, queue_id int, keys array<string>, properties map<string,string>"
    frame = spark.createDataFrame(rows, columns)
    writer = frame.write.format("kvcq").option("server", service.target).option("topic", topic)
    writer.mode("append").save()
    assert bodies(read(spark, service, subscribe=topic)) == sorted(
        f"v{index}".encode() for index in range(40)
    )
    found = client.query(topic, "k7").messages
    assert [(message.body, message.properties["p"]) for message in found] == [(b"v7", "q")]
    with pytest.raises(PythonException, match="queue"):
        frame.selectExpr("body", "99 as queue_id").write.format("kvcq").mode("append").option(
            "server", service.target
        ).option("topic", topic).save()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'x' as body, 1 as colour", "takes no column 'colour'"),
        ("1 as body", "'body' is not binary or string"),
        ("'x' as topic", "the column 'body' is required"),
        ("'x' as body", "without a column 'topic'"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    spark: SparkSession, service: RunningService, columns: str, message: str
) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(AnalysisException, match=message):
        frame.write.format("kvcq").option("server", service.target).mode("append").save()


def test_a_server_that_is_not_there_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.readStream.format("kvcq").option("server", "127.0.0.1:1")
    frame = reader.option("subscribe", "a").option("timeoutSeconds", "1").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match=r"127\.0\.0\.1:1"):
        query.start().awaitTermination()


def test_batches_are_cut_the_same_way_each_time() -> None:
    messages = [Message("t", bytes(size)) for size in [400_000] * 5 + [1] * 2500 + [2 << 20, 7]]
    chunks = list(_chunks(iter(messages)))
    assert [message for chunk in chunks for message in chunk] == messages
    assert [len(chunk) for chunk in chunks] == [2, 2, 1000, 1000, 501, 1, 1]


def test_a_time_finds_an_offset_in_each_queue(client: Client, topic: str) -> None:
    fill(client, topic, 4)
    queues = [Queue(topic, 0), Queue(topic, 1)]
    bounds = client.offsets(queues)
    assert bounds[queues[0]] == Bounds(0, 2)
    by_time = positions.starting(Options({"startingTimestamp": "1"}), "earliest")
    assert by_time.resolve(client, queues, bounds) == dict.fromkeys(queues, 0)
