"""A client that does all at 1,000 a second: `python -m tests.benchmarks.fake_client [FAILS]`.

It stands for one in another language. FAILS is the method that fails.
"""

from __future__ import annotations

import json
import sys
from itertools import chain


def main() -> None:
    fails = sys.argv[1:]
    for line in chain(["{}"], sys.stdin):
        request = json.loads(line)
        method = request.get("work")
        answer = {"count": request.get("count", 50), "seconds": request.get("count", 50) / 1000}
        if method in fails:
            answer = {"error": "two of them are missing"}
        elif method == "put_each":
            answer = {"not_offered": "no batching of its own"}
        elif method is not None and method.startswith("put_one"):
            answer |= {"p50_us": 900.0, "p99_us": 3000.0}
        sys.stdout.write(json.dumps(answer if method else {}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
