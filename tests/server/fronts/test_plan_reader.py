"""What reads in a front: loaded when it is first asked, and not in the way of its other calls."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.fronts.plan_reader import PlanReader
from server.readers import LogPlace, Order
from server.readers.orders import INLINE_DECODED_MESSAGES
from store.message import Message
from tests.support.checked import checked
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.encoded import Encoded

COUNT = INLINE_DECODED_MESSAGES + 1
ROOT = Path(__file__).parents[3]

# In a process of its own: here everything is loaded.
FRONT = """
import asyncio, sys
from server.fronts.front import PlanReader

async def main():
    plans, order, told = PlanReader(), sys.stdin.buffer.read(), []
    plans.read(order, told.append)
    await plans._loading
    loaded = set(sys.modules)
    plans.read(order, lambda answer: told.append(answer.message_count))
    print(told, set(sys.modules) - loaded)
    plans.close()

asyncio.run(main())
"""


@pytest.fixture
def order(tmp_path: Path) -> Iterator[Order]:
    with checked(open_small(tmp_path / "store")) as store:
        store.put([Message("T", b"%d" % number, 0) for number in range(COUNT)])
        plan = store.plan_pull("T", 0, 0, max_messages=COUNT, max_bytes=1 << 20, tag_filter=None)
        log = LogPlace(str(store.config.root / "commitlog"), SEGMENT_BYTES)
        yield Order(log, plan, pb.RECORD_FORM_WHOLE, in_stream=False)


def read(plans: PlanReader, data: bytes) -> asyncio.Future[Encoded | None]:
    done: asyncio.Future[Encoded | None] = asyncio.get_running_loop().create_future()
    plans.read(data, done.set_result)
    return done


async def loaded(order: Order) -> PlanReader:
    plans = PlanReader()
    first = read(plans, pickle.dumps(order))
    assert first.result() is None, "it is loaded first"
    assert plans._loading is not None
    await plans._loading
    return plans


def test_the_first_order_that_is_read_loads_nothing_in_the_loop(order: Order) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FRONT],
        cwd=ROOT,
        input=pickle.dumps(order),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == (b"[None, %d] set()\n" % COUNT, b"")


async def test_what_takes_long_is_read_beside_the_loop(order: Order) -> None:
    plans = await loaded(order)
    at_once = read(plans, pickle.dumps(order))
    assert at_once.done()
    assert at_once.result() is not None
    decoded = order._replace(form=pb.RECORD_FORM_DECODED)
    assert decoded.takes_long
    later = read(plans, pickle.dumps(decoded))
    assert not later.done()
    found = await asyncio.wait_for(later, 20)
    assert found is not None
    assert found.message_count == COUNT
    plans.close()


async def test_what_cannot_be_read_is_left_to_the_owner(
    order: Order, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as an order of another version, when files were replaced under a server."""
    plans = await loaded(order)
    for data in (b"", b"no order", pickle.dumps(("other", "fields"))):
        assert read(plans, data).result() is None
    assert caplog.text.count("a front cannot read what the owner plans") == 1
    assert read(plans, pickle.dumps(order)).result() is not None
    plans.close()
