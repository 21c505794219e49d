"""`python -m tests.support.hasty_server serve …`: the server; lite topics may end after 1 ms."""

from __future__ import annotations

import sys

from server.cli.main import main
from store.lite import lite_topics

if __name__ == "__main__":
    lite_topics.LEAST_EXPIRY_MS = 1
    lite_topics.CLIENT_TIMEOUT_MS = 1  # type: ignore[attr-defined] # imported, and gone by, there
    main(sys.argv[1:], prog_name="kvcq")
