"""One batch for a run of records: every unit, the last bounds, the index, the checkpoint."""

from __future__ import annotations

from kvcq.tables import keys
from kvcq.tables.dispatch_batch import DispatchBatchBuilder
from kvcq.tables.values import expiry_stamp, pack_max, pack_unit
from store.consume_queue import CqUnit, DispatchRequest


def request(
    topic: str,
    offset: int,
    physical: int,
    *,
    message_keys: tuple[str, ...] = (),
    lights: tuple[tuple[str, int], ...] = (),
    in_queue: bool = True,
) -> DispatchRequest:
    return DispatchRequest(
        topic, 1, offset, physical, 50, 77, 1_700_000_000_456, message_keys, lights, in_queue
    )


def test_every_queue_gets_its_units_and_one_max_row() -> None:
    batch = DispatchBatchBuilder().build(
        [
            request("A", 0, 0, lights=(("%LMQ%x", 4),)),
            request("A", 1, 50),
            request("B", 9, 100, lights=(("%LMQ%x", 5),)),
        ],
        150,
    )
    stamp_time = 1_700_000_000_456
    assert batch.puts[keys.UNITS] == [
        (keys.unit_key("A", 1, 0), pack_unit(CqUnit(0, 50, 77, stamp_time))),
        (keys.unit_key("A", 1, 1), pack_unit(CqUnit(50, 50, 77, stamp_time))),
        (keys.unit_key("B", 1, 9), pack_unit(CqUnit(100, 50, 77, stamp_time))),
        (keys.unit_key("%LMQ%x", 0, 4), pack_unit(CqUnit(0, 50, 77, stamp_time))),
        (keys.unit_key("%LMQ%x", 0, 5), pack_unit(CqUnit(100, 50, 77, stamp_time))),
    ]
    assert dict(batch.puts[keys.BOUNDS]) == {
        keys.max_key("A", 1): pack_max(50, 1),
        keys.max_key("B", 1): pack_max(100, 9),
        keys.max_key("%LMQ%x", 0): pack_max(100, 5),
        keys.DISPATCHED_KEY: (150).to_bytes(8, "big"),
    }
    assert not batch.delete_ranges
    assert not batch.deletes


def test_rows_rise_whatever_the_order_of_queues() -> None:
    # The last one is what is left of a message whose topic is gone.
    lights = (("%LMQ%long", 2), ("%LMQ%b", 7), ("%LMQ%a", 1))
    batch = DispatchBatchBuilder().build(
        [
            request("Topic", 3, 0, lights=lights),
            request("A", 0, 50, lights=(("%LMQ%b", 8),)),
            request("%LMQ%b", 9, 100)._replace(queue_id=0),
        ],
        150,
    )
    units = [key for key, _ in batch.puts[keys.UNITS]]
    assert units == sorted(units)
    assert len(units) == 7
    bounds = batch.puts[keys.BOUNDS]
    assert bounds[-1][0] == keys.DISPATCHED_KEY
    assert [key for key, _ in bounds[:-1]] == sorted(key for key, _ in bounds[:-1])
    assert dict(bounds)[keys.max_key("%LMQ%b", 0)] == pack_max(100, 9)


def test_index_rows_end_with_the_stamp_so_that_they_expire() -> None:
    batch = DispatchBatchBuilder().build([request("A", 0, 10, message_keys=("k1", "k2"))], 60)
    time_ms = 1_700_000_000_456
    assert batch.puts[keys.INDEX] == [
        (keys.index_key("A", "k1", time_ms, 10), expiry_stamp(time_ms)),
        (keys.index_key("A", "k2", time_ms, 10), expiry_stamp(time_ms)),
    ]


def test_what_stands_in_no_queue_gets_index_rows_only() -> None:
    batch = DispatchBatchBuilder().build(
        [request("A", 0, 0, message_keys=("k",), in_queue=False)], 50
    )
    assert batch.puts[keys.UNITS] == []
    assert [key for key, _ in batch.puts[keys.BOUNDS]] == [keys.DISPATCHED_KEY]
    assert len(batch.puts[keys.INDEX]) == 1


def test_nothing_to_dispatch_still_moves_the_checkpoint() -> None:
    batch = DispatchBatchBuilder().build([], 4096)
    assert batch.puts[keys.BOUNDS] == [(keys.DISPATCHED_KEY, (4096).to_bytes(8, "big"))]
