"""`python -m tests.support.skewed_server …`: the server, its clock moved by the file that the
environment variable KVCQ_TEST_SKEW names. See skewed_clock.py. Retention looks every 50 ms."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from server.cli.main import main
from tests.support.constants import set_constants
from tests.support.skewed_clock import install

if __name__ == "__main__":
    install(Path(os.environ["KVCQ_TEST_SKEW"]))
    set_constants({"store.config.StoreConfig.clean_interval_s": 0.05})
    main(sys.argv[1:], prog_name="kvcq")
