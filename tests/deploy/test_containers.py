"""deploy/container and deploy/kubernetes: what they set is known, and fits together."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.access import users_of_stopped_store
from server.app.server import DRAIN_NOTICE_S
from server.config import ServerConfig
from server.http import monitoring_app
from server.stage import Stage
from server.version import VERSION
from store.errors import InvalidArgumentError
from tests.deploy.declared import given_to_serve, settings_of
from tests.packaging.environment import Environment

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "deploy" / "container"
CONTAINERFILE = CONTAINER / "Containerfile"
NEEDED_S = DRAIN_NOTICE_S + ServerConfig().drain_grace_s


def _instructions() -> dict[str, list[str]]:
    """Of the last stage, by name."""
    text = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    last = text[text.rindex("\nFROM ") :]
    found: dict[str, list[str]] = {}
    for line in last.splitlines():
        if match := re.fullmatch(r"([A-Z]+) (.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def _environment() -> dict[str, str]:
    [text] = _instructions()["ENV"]
    return dict(word.split("=", 1) for word in text.split())


def _documents() -> dict[str, Any]:
    text = (ROOT / "deploy" / "kubernetes" / "kvcq.yaml").read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def _probes() -> set[str]:
    async def nothing() -> tuple[bytes, str]:
        return b"", ""

    app = monitoring_app(Stage(), nothing)
    return {route.resource.canonical for route in app.router.routes() if route.resource}


def test_the_image_serves_and_says_how_it_is() -> None:
    found = _instructions()
    [entry], [command] = (json.loads(found[name][0]) for name in ("ENTRYPOINT", "CMD"))
    assert entry == "kvcq"
    given_to_serve([command])
    config = settings_of({**_environment(), "KVCQ_SERVER__INSECURE_LISTEN": "true"}).config
    [volume] = found["VOLUME"]
    assert config.data_dir.is_relative_to(volume)
    assert config.data_dir != Path(volume)
    assert found["EXPOSE"] == [f"{config.port} {config.metrics_port}"]
    assert found["USER"] == ["kvcq"]
    [check] = found["HEALTHCHECK"]
    [probe] = re.findall(rf"http://127\.0\.0\.1:{config.metrics_port}(/\w+)", check)
    assert probe in _probes()


def test_the_image_alone_is_reached_by_nobody_unasked() -> None:
    with pytest.raises(InvalidArgumentError, match="tls_cert"):
        settings_of(_environment())


def test_both_builders_leave_out_the_same() -> None:
    podman, docker = (
        (CONTAINER / f"Containerfile.{name}ignore").read_text(encoding="utf-8")
        for name in ("container", "docker")
    )
    assert podman == docker


def build_context(directory: Path) -> None:
    """What COPY finds, as the file of the builders says."""
    lines = (CONTAINER / "Containerfile.dockerignore").read_text(encoding="utf-8").split()
    assert lines[0] == "*"
    for line in lines[1:]:
        if line.startswith("!"):
            source = ROOT / line[1:]
            assert source.exists(), line
            if source.is_dir():
                ignore = shutil.ignore_patterns(
                    *(other.removeprefix("**/") for other in lines if other.startswith("**/"))
                )
                shutil.copytree(source, directory / source.name, ignore=ignore)
            else:
                shutil.copy2(source, directory)


def test_the_context_has_all_that_the_distributions_are_made_of(tmp_path: Path) -> None:
    build_context(tmp_path)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [packages] = re.findall(r"targets.wheel\]\npackages = \[(.*)\]", text)
    for package in re.findall(r'"(\w+)"', packages):
        assert (tmp_path / package / "__init__.py").is_file()
    assert (tmp_path / "kvcq_client" / "pyproject.toml").is_file()
    assert not [path for path in tmp_path.rglob("*") if fnmatch(path.name, "__pycache__")]


@pytest.mark.packages
@pytest.mark.timeout(600)
def test_what_the_image_installs_can_be_installed_from_the_context_alone(tmp_path: Path) -> None:
    context = tmp_path / "src"
    context.mkdir()
    build_context(context)
    environment = Environment(tmp_path / "venv")
    environment.install(context / "kvcq_client", context)
    assert VERSION in environment.kvcq("--version", cwd=tmp_path)
    assert "server.port" in environment.kvcq("config", cwd=tmp_path)
    for command in ("serve", "top"):
        assert "Usage" in environment.kvcq(command, "--help", cwd=tmp_path)


def test_compose_gives_known_settings_on_this_machine_alone() -> None:
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text(encoding="utf-8"))
    service = compose["services"]["kvcq"]
    config = settings_of({**_environment(), **service["environment"]}).config
    assert (CONTAINER / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    for published in service["ports"]:
        address, outside, inside = published.split(":")
        assert address == "127.0.0.1", "the server asks for neither TLS nor users"
        assert outside == inside
        assert int(inside) in (config.port, config.metrics_port)
    [volume] = service["volumes"]
    name, _, mounted = volume.partition(":")
    assert name in compose["volumes"]
    assert config.data_dir.is_relative_to(mounted)
    assert int(service["stop_grace_period"].removesuffix("s")) >= 3 * NEEDED_S


def test_kubernetes_starts_what_there_is(tmp_path: Path) -> None:
    found = _documents()
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    given = given_to_serve(container["args"])
    mounts = {one["name"]: Path(one["mountPath"]) for one in container["volumeMounts"]}
    [(name, text)] = found["ConfigMap"]["data"].items()
    assert given["config_file"] == mounts["config"] / name
    file = tmp_path / name
    file.write_text(text)
    settings = settings_of(_environment(), file)  # the file alone: the image's are its defaults
    config = settings_of({}, file).config
    assert config.access
    assert config.tls_cert is not None
    assert config.tls_cert.is_relative_to(mounts["tls"])
    assert config.tls_ca is None, "probes show no certificate"
    assert not config.insecure_listen
    annotations = found["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(config.metrics_port)
    assert annotations["prometheus.io/scheme"] == "https"
    for each in (config, settings.config):
        assert each.data_dir.is_relative_to(mounts["data"])
        assert each.data_dir != mounts["data"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"grpc": config.port, "metrics": config.metrics_port}
    for one in found["Service"]["spec"]["ports"]:
        assert one["port"] == ports[one["targetPort"]]
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        # Of a kubelet: it takes any certificate, and shows none.
        asked = {"path": path, "port": "metrics", "scheme": "HTTPS"}
        assert container[probe]["httpGet"] == asked
        assert path in _probes()
    assert pod["terminationGracePeriodSeconds"] >= 3 * NEEDED_S


def test_kubernetes_makes_the_first_administrator_once(tmp_path: Path) -> None:
    found = _documents()
    [first] = found["StatefulSet"]["spec"]["template"]["spec"]["initContainers"]
    assert first["command"] == ["sh", "-c"]
    [script] = first["args"]
    # The paths of the pod, below a directory of the test.
    text = found["ConfigMap"]["data"]["kvcq.toml"] + "segment_bytes = 4194304\n"
    for path in ("etc/kvcq/config", "etc/kvcq/admin", "var/lib/kvcq", "bin"):
        (tmp_path / path).mkdir(parents=True)
    here = re.compile("(/etc/kvcq|/var/lib/kvcq)")
    (tmp_path / "etc/kvcq/config/kvcq.toml").write_text(here.sub(rf"{tmp_path}\1", text))
    (tmp_path / "etc/kvcq/admin/secret").write_text("a-secret-of-the-test")
    command = tmp_path / "bin/kvcq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m server "$@"\n')
    command.chmod(0o755)
    variables = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    ends = []
    for _ in range(2):  # as after a restart of the pod
        done = subprocess.run(
            ["sh", "-c", here.sub(rf"{tmp_path}\1", script)],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        ends.append((done.returncode, done.stderr))
    assert [code for code, _ in ends] == [0, 0], ends
    with users_of_stopped_store(tmp_path / "var/lib/kvcq/store", None, 4194304) as users:
        assert users.get("ops").is_admin


def test_kubernetes_names_and_volumes_fit_together() -> None:
    found = _documents()
    assert set(found) == {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"}
    spec = found["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == found["Service"]["spec"]["selector"]
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert spec["serviceName"] == found["Service"]["metadata"]["name"]
    assert spec["replicas"] == 1
    pod = spec["template"]["spec"]
    there = {one["name"] for one in pod["volumes"]}
    there |= {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}
    [first], [container] = pod["initContainers"], pod["containers"]
    used = {one["name"] for each in (first, container) for one in each["volumeMounts"]}
    assert used == there
    assert first["image"] == container["image"]
    assert first["securityContext"] == container["securityContext"]
    assert found["Service"]["spec"]["publishNotReadyAddresses"], "reads go on with a full disk"
    users = re.findall(r"--[ug]id (\d+)", CONTAINERFILE.read_text(encoding="utf-8"))
    context = pod["securityContext"]
    assert {str(context[name]) for name in ("runAsUser", "runAsGroup", "fsGroup")} == set(users)
