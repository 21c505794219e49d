"""Writes the picture of the rooms into READING.md, from the imports of the code.

    python -m docs.reading

A test tells when it was forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.support.imports import edges_of, imports_of, is_room, room_of

PAGE = Path(__file__).parents[1] / "READING.md"
BEGIN, END = "<!-- generated: python -m docs.reading -->", "<!-- end of what is generated -->"

PACKAGES = ("server", "migration", "kvcq", "store", "kvcq_client")
#: One box each, whatever rooms they have.
FOLDED = ("server.cli", "migration.spark", "kvcq_client")

#: They import what they offer, or begin everything: no part of the picture.
DOORS = {"server", "migration", "kvcq", "store", "server.__main__"}

Graph = dict[str, set[str]]


def rooms() -> Graph:
    """Box to the boxes that it imports: rooms, and the modules of a package that lie in none.

    These are two boxes: `store` opens and leads, and uses the rooms; `store: values` is used by
    them.
    """
    edges = [
        (edge.importer.removesuffix(".__init__"), edge.target.removesuffix(".__init__"))
        for edge in edges_of(imports_of(PACKAGES))
    ]
    uses: Graph = defaultdict(set)
    for importer, target in edges:
        uses[importer].add(target)
    # Modules that lie in no room and use rooms lead; one that a room uses stands by itself.
    leading = {
        module
        for module in list(uses)
        if _room(module) is None
        and any(
            (_room(other) or "").startswith(_package(module)) for other in _reached(uses, module)
        )
    }
    used = {
        target
        for importer, target in edges
        if target in leading and _room(importer) and _package(importer) == _package(target)
    }
    leading -= used
    graph: Graph = defaultdict(set)
    for importer, target in edges:
        one, other = (
            module if module in used else _box(module, leading) for module in (importer, target)
        )
        if one != other and not {importer, target} & DOORS and _package(target) in PACKAGES:
            graph[one].add(other)
            graph[other] |= set()
    return graph


def reduced(graph: Graph) -> Graph:
    """Without the arrows that lead where others lead, too."""
    return {
        box: {
            target
            for target in targets
            if not any(target in _reached(graph, other) for other in targets - {target})
        }
        for box, targets in graph.items()
    }


def picture() -> str:
    """The flowchart, in Mermaid's words."""
    graph = reduced(rooms())
    lines = ["```mermaid", "flowchart TD"]
    for package in PACKAGES:
        inside = sorted(box for box in graph if box.partition(".")[0].partition(":")[0] == package)
        lines.append(f"  subgraph {package}_package [{package}]")
        lines += [f'    {_name(box)}["{box}"]' for box in inside]
        lines.append("  end")
    lines += [
        f"  {_name(box)} --> {_name(target)}"
        for box in sorted(graph)
        for target in sorted(graph[box])
    ]
    return "\n".join([*lines, "```"])


def page() -> str:
    """READING.md with the picture as it should be."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n{picture()}\n{END}{rest.partition(END)[2]}"


def _room(module: str) -> str | None:
    for folder in FOLDED:
        if module == folder or module.startswith(f"{folder}."):
            return folder
    return module if is_room(module) else room_of(module)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _box(module: str, leading: set[str]) -> str:
    if (room := _room(module)) is not None:
        return room
    package = _package(module)
    return package if module in leading else f"{package}: values"


def _reached(graph: Graph, start: str) -> set[str]:
    """All that follows from `start`, without itself."""
    found: set[str] = set()
    waiting = [*graph.get(start, ())]
    while waiting:
        box = waiting.pop()
        if box not in found:
            found.add(box)
            waiting += graph.get(box, ())
    return found


def _name(box: str) -> str:
    return box.replace(".", "_").replace(": ", "_")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
