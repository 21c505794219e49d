"""Topics and groups in which a RocketMQ broker keeps what it has not delivered yet.

| topic                     | holds                                                         |
|---------------------------|---------------------------------------------------------------|
| SCHEDULE_TOPIC_XXXX       | delayed messages, a queue for each level                      |
| rmq_sys_wheel_timer       | messages for a time, and recalls of them                      |
| RMQ_SYS_TRANS_HALF_TOPIC  | messages of transactions; one that is asked about is put once |
|                           | more                                                          |
| RMQ_SYS_TRANS_OP_HALF_... | queue offsets of halves that were decided                     |
| rmq_sys_REVIVE_LOG_*      | what pop consumers were given, and what they acknowledged     |
| %RETRY%*                  | what is to be delivered to a group again                      |

How far the broker is in a queue of these: `config/delayOffset.json`, by level; offsets that groups
of its own have committed; `config/timercheck` and the timer's log. Taken over, all of it is offsets
of groups, so an append that takes something over says with it how far that went.

Source: RocketMQ 5.5, ScheduleMessageService, TimerMessageStore, TransactionalMessageUtil,
PopAckConstants, KeyBuilder.
"""

from __future__ import annotations

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
ENDED_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
REVIVE_TOPICS = "rmq_sys_REVIVE_LOG_"
RETRY_TOPICS = "%RETRY%"

#: The broker's own groups, in whose names it commits.
HALF_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

#: Properties that say how a message waits; a delivered message has none of them.
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
