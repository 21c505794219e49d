"""What is made of messages that are held."""

from __future__ import annotations

from store.held import acceptable
from store.message import Message


def test_what_is_left_of_a_message_says_whether_its_body_is_compressed() -> None:
    full = Message("T", b"zipped", tag="t", properties={"p": "v" * 32_760}, flag=7, sys_flag=1)
    left = Message("T", b"zipped", properties={"own": "x"}, flag=7, sys_flag=1)
    assert acceptable(full, {"own": "x"}) == left
    assert acceptable(left, {}) is left
