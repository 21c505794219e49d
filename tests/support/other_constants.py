"""`python -m tests.support.other_constants …`: the server, where constants of the program have
the values that the environment variable KVCQ_TEST_CONSTANTS names, as JSON."""

from __future__ import annotations

import json
import os
import sys

from server.cli.main import main
from tests.support.constants import set_constants

if __name__ == "__main__":
    set_constants(json.loads(os.environ["KVCQ_TEST_CONSTANTS"]))
    main(sys.argv[1:], prog_name="kvcq")
