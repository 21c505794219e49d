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
[[goals]]                    # bounds of figures at scale 1; the reason is shown beside the outcome
figure = "put"
at_least = 100000            # or at_most
reason = "what one producer sends"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report import Goal

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P")

_MOST_SCALE = 1000
SHIPPED = Path(__file__).parent / "scenarios"
_KEYS = {"name", "title", "kind", "seed", "scaled", "store", "parameters", "goals"}


@dataclass(frozen=True)
class Scenario:
    """A scenario file, parsed and scaled."""

    name: str
    title: str
    kind: str
    seed: int
    scale: float
    store: Mapping[str, Any]
    parameters: Mapping[str, Any]
    goals: tuple[Goal, ...] = ()

    def parameters_as(self, kind: type[P]) -> P:
        """The parameters as the kind's own dataclass.

        Raises ScenarioError for unknown ones, and for numbers that are not from 0 to 2**53.
        """
        known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
        unknown = sorted(set(self.parameters) - known)
        if unknown:
            raise ScenarioError(f"{self.name}: no parameter {unknown[0]!r}; there are {known}")
        for name, value in self.parameters.items():
            _check_numbers(f"{self.name}: {name}", value)
        made = kind(**self.parameters)
        for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
            value = getattr(made, field.name)
            if field.type == "int" and type(value) is not int:
                raise ScenarioError(f"{self.name}: {field.name}: {value!r} is not a whole number")
        return made


def shipped_scenarios() -> list[str]:
    """Names of the built-in scenarios, in order."""
    names = (path.stem for path in SHIPPED.glob("*.toml"))
    return sorted(names, key=lambda name: int(name.partition("-")[0]))


def load_scenario(name: str, *, scale: float = 1.0, seed: int | None = None) -> Scenario:
    """A built-in scenario by name or number, or a file by path. Raises ScenarioError."""
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
    """The scenario of a parsed document. Raises ScenarioError."""
    if not 0 < scale <= _MOST_SCALE:
        raise ScenarioError(f"a scale of {scale} is not above 0, and {_MOST_SCALE} at most")
    unknown = sorted(set(document) - _KEYS)
    missing = sorted(_KEYS - {"store", "scaled", "goals"} - set(document))
    if unknown or missing:
        what = f"no key {unknown[0]!r} is known" if unknown else f"{missing[0]!r} is missing"
        raise ScenarioError(f"{where}: {what}")
    seed = document["seed"] if seed is None else seed
    if type(seed) is not int or not 0 <= seed < 1 << 63:
        raise ScenarioError(f"{where}: seed: {seed!r} is not a whole number from 0 to 2**63")
    parameters = dict(document["parameters"])
    for name in document.get("scaled", ()):
        if name not in parameters:
            raise ScenarioError(f"{where}: scaled: no parameter {name!r}")
        parameters[name] = _scaled(parameters[name], scale)
    return Scenario(
        document["name"],
        document["title"],
        document["kind"],
        seed,
        scale,
        dict(document.get("store", {})),
        parameters,
        tuple(_goal(document["name"], one, where) for one in document.get("goals", ())),
    )


def _goal(work: str, row: Mapping[str, Any], where: str) -> Goal:
    """Parse a goal. Raises ScenarioError."""
    bounds = [name for name in ("at_least", "at_most") if name in row]
    if len(bounds) != 1 or set(row) != {"figure", "reason", *bounds}:
        raise ScenarioError(f"{where}: goals: a goal has figure, at_least or at_most, and reason")
    (bound,) = bounds
    return Goal(work, row[bound], row["reason"], row["figure"], at_most=bound == "at_most")


def _check_numbers(where: str, value: object) -> None:
    """Check a parameter, including nested values. Raises ScenarioError."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            _check_numbers(where, one)
    elif isinstance(value, int | float) and not 0 <= value <= 1 << 53:
        raise ScenarioError(f"{where}: {value!r} is not from 0 to 2**53")


def _scaled(value: Any, scale: float) -> Any:  # noqa: ANN401 - a number, or a list of them
    if isinstance(value, list):
        return [_scaled(one, scale) for one in value]
    if isinstance(value, int):
        return max(1, round(value * scale))
    return value * scale
