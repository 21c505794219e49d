"""Scenarios are small TOML files: what kind of load, how much, and with which store settings.

name = "steady"
title = "Steady put and pull"
kind = "steady"
seed = 1
scaled = ["messages"]        # parameters that --scale multiplies
[store]                      # settings of the store, as in store.config.StoreConfig
segment_bytes = 268435456
[parameters]                 # of the kind; unknown ones are refused
messages = 1000000
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_bench.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P")

SHIPPED = Path(__file__).parent / "scenarios"
_KEYS = {"name", "title", "kind", "seed", "scaled", "store", "parameters"}


@dataclass(frozen=True)
class Scenario:
    """One file, read and scaled."""

    name: str
    title: str
    kind: str
    seed: int
    scale: float
    store: Mapping[str, Any]
    parameters: Mapping[str, Any]

    def parameters_as(self, kind: type[P]) -> P:
        """The parameters as the kind's own dataclass. Raises ScenarioError for unknown ones."""
        known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
        unknown = sorted(set(self.parameters) - known)
        if unknown:
            raise ScenarioError(f"{self.name}: no parameter {unknown[0]!r}; there are {known}")
        return kind(**self.parameters)


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that come with the program, in order."""
    names = (path.stem for path in SHIPPED.glob("*.toml"))
    return sorted(names, key=lambda name: int(name.partition("-")[0]))


def load_scenario(name: str, *, scale: float = 1.0, seed: int | None = None) -> Scenario:
    """A shipped scenario by name or number, or a file by path. Raises ScenarioError."""
    path = Path(name)
    if path.suffix != ".toml":
        matching = [one for one in shipped_scenarios() if name in (one, one.partition("-")[0])]
        matching += [one for one in shipped_scenarios() if one.partition("-")[2] == name]
        if not matching:
            raise ScenarioError(f"no scenario {name!r}; there are {', '.join(shipped_scenarios())}")
        path = SHIPPED / f"{matching[0]}.toml"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}") from error
    return make_scenario(document, scale=scale, seed=seed, where=str(path))


def make_scenario(
    document: Mapping[str, Any], *, scale: float = 1.0, seed: int | None = None, where: str = ""
) -> Scenario:
    """The scenario of a document that was read. Raises ScenarioError."""
    if not scale > 0:
        raise ScenarioError(f"a scale of {scale} is not above 0")
    unknown = sorted(set(document) - _KEYS)
    missing = sorted(_KEYS - {"store", "scaled"} - set(document))
    if unknown or missing:
        what = f"no key {unknown[0]!r} is known" if unknown else f"{missing[0]!r} is missing"
        raise ScenarioError(f"{where}: {what}")
    parameters = dict(document["parameters"])
    for name in document.get("scaled", ()):
        if name not in parameters:
            raise ScenarioError(f"{where}: scaled: no parameter {name!r}")
        parameters[name] = _scaled(parameters[name], scale)
    return Scenario(
        document["name"],
        document["title"],
        document["kind"],
        document["seed"] if seed is None else seed,
        scale,
        dict(document.get("store", {})),
        parameters,
    )


def _scaled(value: Any, scale: float) -> Any:  # noqa: ANN401 - a number, or a list of them
    if isinstance(value, list):
        return [_scaled(one, scale) for one in value]
    if isinstance(value, int):
        return max(1, round(value * scale))
    return value * scale
