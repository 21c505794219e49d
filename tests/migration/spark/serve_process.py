"""A served store as a process: says where it listens, ends when its standard input does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.serving import serving


async def main() -> None:
    async with serving(Path(sys.argv[1])) as served:
        sys.stdout.write(served.target + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
