"""Converts transactions to API messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import transactions_pb2 as pb
from store.format import SHARDING_KEY

if TYPE_CHECKING:
    from store.held import Check, Transaction
    from store.message import Message

#: Properties that mark the message of a transaction and name its group; the check has these as
#: fields.
_OF_TRANSACTIONS = ("PGROUP", "TRAN_MSG")


def transaction_out(one: Transaction) -> pb.Transaction:
    return pb.Transaction(
        transaction_id=one.transaction_id,
        group=one.group,
        topic=one.topic,
        begun_ms=one.begun_ms,
        checks=one.checks,
        next_check_ms=one.next_check_ms,
    )


def check_out(check: Check) -> pb.TransactionCheck:
    return pb.TransactionCheck(
        transaction_id=check.transaction_id,
        message=_message_out(check.message),
        checks=check.checks,
    )


def _message_out(message: Message) -> kvcq_pb2.Message:
    properties = dict(message.properties or {})
    for name in ("TAGS", "KEYS", *_OF_TRANSACTIONS):
        properties.pop(name, None)
    ordering_key = properties.pop(SHARDING_KEY, "")
    return kvcq_pb2.Message(
        topic=message.topic,
        queue_id=None if ordering_key else message.queue_id,
        body=message.body,
        tag=message.tag,
        keys=message.keys,
        light_queues=message.light_queues,
        properties=properties,
        flag=message.flag,
        born_time_ms=message.born_time_ms,
        ordering_key=ordering_key,
    )
