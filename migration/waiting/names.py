"""Topics and groups with messages that a RocketMQ broker has not delivered yet.

| topic                     | holds                                                         |
|---------------------------|---------------------------------------------------------------|
| SCHEDULE_TOPIC_XXXX       | delayed messages, a queue for each level                      |
| rmq_sys_wheel_timer       | messages for a time, and recalls of them                      |
| RMQ_SYS_TRANS_HALF_TOPIC  | messages of transactions; put again at each check             |
| RMQ_SYS_TRANS_OP_HALF_... | queue offsets of halves that were decided                     |
| rmq_sys_REVIVE_LOG_*      | deliveries to pop consumers, and their acknowledgements       |
| %RETRY%*                  | messages to redeliver to a group                              |

The broker's position in these queues: `config/delayOffset.json`, by level; committed offsets of its
own groups; `config/timercheck` and the timer's log. After a takeover all positions are offsets of
groups, so that one append takes messages over and records the position.

Source: RocketMQ 5.5, ScheduleMessageService, TimerMessageStore, TransactionalMessageUtil,
PopAckConstants, KeyBuilder.
"""

from __future__ import annotations

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
ENDED_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
REVIVE_TOPICS = "rmq_sys_REVIVE_LOG_"
RETRY_TOPICS = "%RETRY%"

#: The broker's own groups.
HALF_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

#: Properties of waiting messages; a delivered message has none of them.
WAITING_PROPERTIES = frozenset(
    (
        "DELAY",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_DELAY_LEVEL",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_PREPARED_QUEUE_OFFSET",
    )
)
