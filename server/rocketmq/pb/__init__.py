"""Generated from proto/rocketmq by `make proto`. Not edited by hand.

Its types have the same names as those of RocketMQ's own clients, and protobuf allows each name once
in a process. So a program that imports such a client must not import this room.
"""
