"""The pages, in the order of the navigation."""

from server.console.pages.delayed import PAGE as DELAYED
from server.console.pages.groups import PAGE as GROUPS
from server.console.pages.jobs import PAGE as JOBS
from server.console.pages.light_queues import PAGE as LIGHT_QUEUES
from server.console.pages.lite_topics import PAGE as LITE_TOPICS
from server.console.pages.messages import PAGE as MESSAGES
from server.console.pages.migration import PAGE as MIGRATION
from server.console.pages.overview import PAGE as OVERVIEW
from server.console.pages.rocksdb import PAGE as ROCKSDB
from server.console.pages.topics import PAGE as TOPICS
from server.console.pages.transactions import PAGE as TRANSACTIONS

PAGES = (
    OVERVIEW,
    TOPICS,
    LIGHT_QUEUES,
    LITE_TOPICS,
    MESSAGES,
    DELAYED,
    TRANSACTIONS,
    GROUPS,
    JOBS,
    ROCKSDB,
    MIGRATION,
)
