"""deploy/prometheus: the rules load, fire when they should, and ask for metrics that there are."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from server.observe import families, observer
from server.observe.families import Row
from store.errors import StoreFailedError
from tests.deploy.live import PATIENCE_S, names_in, prometheus, used_server
from tests.support.certificates import Authority
from tests.support.http import scrape
from tests.support.serving import serving
from tests.support.users import guarded, secret_of

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "prometheus"
RULES = DIRECTORY / "kvcq.rules.yml"
TESTS = DIRECTORY / "kvcq.rules.test.yml"

if TYPE_CHECKING:
    from collections.abc import Iterator


def _rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


#: They are there only after what they tell of.
LATER = {"kvcq_scrub_completed_timestamp_seconds"}
ALERTS = {rule["alert"]: rule for rule in _rules()}


def promtool(*arguments: str, cwd: Path = DIRECTORY) -> str:
    """What promtool prints. Skips the test where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run(
        [program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", RULES.name)


def test_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", TESTS.name)


def test_promtool_takes_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


def test_each_alert_says_how_serious_it_is_and_where_to_read_on() -> None:
    assert len(ALERTS) == len(list(_rules()))
    for name, rule in ALERTS.items():
        assert re.fullmatch(r"Kvcq[A-Za-z]+", name)
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"


async def test_alerts_ask_for_metrics_that_a_live_server_has(tmp_path: Path) -> None:
    async with used_server(tmp_path / "store") as served:
        names = (await scrape(served)).names | {"up"}
    assert _known() >= LATER
    for name, rule in ALERTS.items():
        asked = names_in(rule["expr"])
        assert asked, name
        assert asked <= names | LATER, f"{name}: {asked - names}"


def test_the_tests_of_the_rules_use_metrics_that_there_are() -> None:
    known = _known() | {"up"}
    document = yaml.safe_load(TESTS.read_text(encoding="utf-8"))
    for test in document["tests"]:
        for series in test["input_series"]:
            for name in names_in(series["series"]):
                assert name.removesuffix("_bucket") in known
        for alert in test["alert_rule_test"]:
            assert alert["alertname"] in ALERTS


@pytest.mark.slow
@pytest.mark.integration
async def test_an_alert_fires_in_a_real_prometheus(tmp_path: Path) -> None:
    firing = 'ALERTS{alertname="KvcqStoreFailed", alertstate="firing"}'
    async with (
        serving(tmp_path / "store", metrics_port=0, damaged=True) as served,
        prometheus(tmp_path, served, RULES) as ask,
        asyncio.timeout(PATIENCE_S),
    ):
        while not await ask("kvcq_store_failed == 0"):
            await asyncio.sleep(0.1)
        assert await ask(firing) == []
        served.store._appends.fail(StoreFailedError("as if an fsync had failed"))
        while not (alerts := await ask(firing)):
            await asyncio.sleep(0.1)
    [alert] = alerts
    assert alert["metric"]["severity"] == "critical"
    assert alert["metric"]["job"] == "kvcq"


def _secured(directory: Path) -> dict[str, Any]:
    """The job of docs/monitoring.md for a server with TLS and users, its files in `directory`."""
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    [job] = yaml.safe_load(block.replace("/etc/prometheus", str(directory)))["scrape_configs"]
    found: dict[str, Any] = job
    return found


def test_promtool_takes_the_job_that_the_docs_have_for_tls_and_users(tmp_path: Path) -> None:
    for name in ("kvcq-ca.pem", "kvcq.secret"):
        (tmp_path / name).write_text("as if")
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [_secured(tmp_path)]}))
    promtool("check", "config", "--syntax-only", "prometheus.yml", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.integration
async def test_a_real_prometheus_gets_in_with_a_certificate_and_a_user(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue()
    authority.ca.rename(tmp_path / "kvcq-ca.pem")
    (tmp_path / "kvcq.secret").write_text(f"{secret_of('prometheus')}\n")
    job = _secured(tmp_path)
    way = {name: job[name] for name in ("scheme", "tls_config", "basic_auth")}
    (tmp_path / "stranger").mkdir()
    async with (
        guarded(
            tmp_path / "store", {"prometheus": []}, metrics_port=0, tls_cert=cert, tls_key=key
        ) as served,
        prometheus(tmp_path, served, **way) as ask,
        prometheus(
            tmp_path / "stranger", served, **{name: way[name] for name in ("scheme", "tls_config")}
        ) as ask_stranger,
        asyncio.timeout(PATIENCE_S),
    ):
        while not await ask("kvcq_ready == 1"):
            await asyncio.sleep(0.1)
        while not await ask_stranger('up{job="kvcq"} == 0'):
            await asyncio.sleep(0.1)


def _known() -> set[str]:
    """All metrics that a table of the code names."""
    found = [each for module in (families, observer) for each in vars(module).values()]
    for table in [each for each in found if isinstance(each, dict)]:
        found += table.values()
    return {each.metric for each in found if isinstance(each, Row)}
