"""docs/monitoring.md names metrics that a live server has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.deploy.live import used_server
from tests.support.http import scrape

_PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"


async def test_each_metric_that_is_named_is_there(tmp_path: Path) -> None:
    text = _PAGE.read_text(encoding="utf-8")
    [table] = re.findall(r"\n\| metric \| tells \|\n(.*?)\n\n", text, re.DOTALL)
    rows = [re.findall(r"`([a-z0-9_]+)`", line.split("|")[1]) for line in table.splitlines()[1:]]
    async with used_server(tmp_path / "store") as served:
        names = (await scrape(served)).names
    families = names | {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    for row in rows:
        for name in row:
            # `_this` is the name before it with another end.
            assert any(
                family == name or (name.startswith("_") and family.endswith(name))
                for family in families
            ), name
