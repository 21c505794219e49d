"""deploy/grafana: the dashboard is what docs/dashboard.py makes, and its queries have answers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from docs import dashboard
from tests.deploy.live import PATIENCE_S, names_in, prometheus, use, used_server
from tests.deploy.test_prometheus import promtool
from tests.support.http import scrape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What Grafana puts in before it asks.
_FILLED = {"$__rate_interval": "5s", "$instance": ".*"}
#: They have an answer only after what they tell of.
_MAY_BE_EMPTY = ("kvcq_job_progress_ratio", "time() - (kvcq_job_last_done")


def _targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in json.loads(dashboard.PAGE.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


def _queries() -> dict[str, str]:
    """Each query as Grafana sends it, with its panel."""
    found = {}
    for title, target in _targets():
        query = target["expr"]
        for name, value in _FILLED.items():
            query = query.replace(name, value)
        found[query] = title
    return found


def test_the_file_is_what_the_table_makes() -> None:
    text = dashboard.PAGE.read_text(encoding="utf-8")
    assert text == dashboard.text(), "mend with: python -m docs.dashboard"


def test_grafana_can_load_it() -> None:
    document = json.loads(dashboard.PAGE.read_text(encoding="utf-8"))
    assert document["uid"]
    assert document["title"]
    assert document["schemaVersion"] >= 36
    assert "id" not in document, "an id would be that of another dashboard"
    panels = document["panels"]
    assert max(Counter(panel["id"] for panel in panels).values()) == 1
    places: Counter[tuple[int, int]] = Counter()
    for panel in panels:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24
                places[x, y] += 1
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["datasource"]["uid"] == "${datasource}"
    assert set(places.values()) == {1}, "panels lie on each other"
    variables = {each["name"] for each in document["templating"]["list"]}
    assert variables == {"datasource", "instance"}


async def test_each_query_asks_for_metrics_that_a_live_server_has(tmp_path: Path) -> None:
    async with used_server(tmp_path / "store") as served:
        names = (await scrape(served)).names
    for query, title in _queries().items():
        asked = names_in(query)
        assert asked, title
        assert asked <= names, f"{title}: {asked - names}"


def test_promtool_takes_every_query(tmp_path: Path) -> None:
    queries = list(_queries())
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    # JSON is YAML.
    document = {"groups": [{"name": "queries", "rules": rules}]}
    (tmp_path / "queries.yml").write_text(json.dumps(document))
    assert f"{len(queries)} rules found" in promtool("check", "rules", "queries.yml", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.integration
async def test_each_query_has_an_answer_in_a_real_prometheus(tmp_path: Path) -> None:
    async with used_server(tmp_path / "store") as served, prometheus(tmp_path, served) as ask:
        waiting = _queries()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while waiting:
                    await asyncio.sleep(0.25)  # a rate takes two scrapes
                    await use(served)
                    for query in list(waiting):
                        if query.startswith(_MAY_BE_EMPTY) or await ask(query):
                            del waiting[query]
        except TimeoutError:
            pytest.fail(f"no answer to {waiting}")
