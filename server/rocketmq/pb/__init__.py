"""Generated from proto/rocketmq by `make proto`. Not edited by hand.

The names of its types are those of RocketMQ's own clients, which protobuf knows once a process: a
program that imports one of them must not import this room.
"""
