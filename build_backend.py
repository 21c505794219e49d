"""The build backend: hatchling, over a tree in which the rooms lie below `kvcq`.

In the repository `store`, `server` and `migration` are top-level packages. In site-packages such
names belong to nobody: two distributions may claim one, or a project its own. So a wheel has them
one level down, and every import of them says so:

| in the repository         | in a wheel                     |
|---------------------------|--------------------------------|
| store/flush.py            | kvcq/store/flush.py            |
| from store.flush import X | from kvcq.store.flush import X |
| "server.cli.main:main"    | "kvcq.server.cli.main:main"    |

Lines keep their numbers. Names in strings stay: code asks a module for its `__name__`, and what
passes a name in a string to `import_module` or `python -m` is not built. Editable installs and
source distributions have the repository's own layout. docs/packaging.md says why.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import tempfile
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any

import hatchling.build
from hatchling.build import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

# No prepare_metadata_for_build_wheel: the metadata of a wheel is that of its tree.
__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

#: The packages that move, and the one that they move into.
MOVED = frozenset(("store", "server", "migration"))
HOME = "kvcq"

_ENTRY_POINT = re.compile(rf'"(?=(?:{"|".join(sorted(MOVED))})[.:\w]+:\w+")')
#: Functions that are called with the name of a module.
_NAMING = ("import_module", "__import__", "find_spec", "start_module", "import_root")
_CLIENT = re.compile(r'"kvcq-client==[^"]+"')


class LayoutError(Exception):
    """The project cannot be laid out as a wheel: the places, and what is wrong there."""


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The name of the wheel's file, as PEP 517 has it."""
    directory = str(Path(wheel_directory).resolve())
    with tempfile.TemporaryDirectory(prefix="kvcq-wheel-") as scratch:
        lay_out(Path.cwd(), Path(scratch))
        with chdir(scratch):
            name: str = hatchling.build.build_wheel(directory, config_settings, metadata_directory)
            return name


def lay_out(source: Path, tree: Path) -> None:
    """Copy the project in `source` to the empty `tree`, as a wheel has it.

    Raises LayoutError unless every import of a package of ours finds its module there.
    """
    text = (source / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        if name in MOVED and (source / HOME / name).exists():
            raise LayoutError(f"{HOME}/{name}: {name}/ moves there")
        shutil.copytree(
            source / name,
            tree / HOME / name if name in MOVED else tree / name,
            ignore=shutil.ignore_patterns("__pycache__", "docs"),
            dirs_exist_ok=True,
        )
    for name in (project["project"]["readme"], *project["project"]["license-files"]):
        shutil.copy2(source / name, tree)
    (tree / "pyproject.toml").write_text(_moved_project(text, source), encoding="utf-8")
    faults = []
    for path in sorted(tree.rglob("*.py")):
        try:
            moved = moved_imports(path.read_text(encoding="utf-8"))
            path.write_text(moved, encoding="utf-8")
            _check_imports(moved, tree)
        except LayoutError as error:
            faults.append(f"{path.relative_to(tree)}: {error}")
    if faults:
        raise LayoutError("\n".join(faults))


def _moved_project(text: str, source: Path) -> str:
    """pyproject.toml with the moved entry points.

    In a checkout the client is required from its directory, so that `pip install .` needs no index
    that has it. Elsewhere, in an unpacked source distribution, it is required by its name.
    """
    client = source / "kvcq_client"
    if client.is_dir():
        path = json.dumps(f"kvcq-client @ {client.resolve().as_uri()}")
        text, count = _CLIENT.subn(lambda _: path, text)
        if count != 1:
            raise LayoutError(f"pyproject.toml: requires kvcq-client {count} times")
    return _ENTRY_POINT.sub(f'"{HOME}.', text)


def moved_imports(text: str) -> str:
    """The module's text with its imports of packages that move changed. Raises LayoutError."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call | ast.List | ast.Tuple) and _names_module_in_string(node):
            raise LayoutError(f"line {node.lineno}: a module named in a string; use its __name__")
        if isinstance(node, ast.ImportFrom) and _moves(node.module):
            old, new = f"from {node.module} ", f"from {HOME}.{node.module} "
        elif isinstance(node, ast.Import) and any(_moves(alias.name) for alias in node.names):
            old, new = ast.unparse(node), _moved_import(node)
        else:
            continue
        line = lines[node.lineno - 1]
        if not new or not line.lstrip().startswith(old):
            raise LayoutError(f"line {node.lineno}: {line.strip()!r} cannot be moved")
        lines[node.lineno - 1] = line.replace(old, new, 1)
    return "\n".join(lines)


def _moves(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] in MOVED


def _moved_import(node: ast.Import) -> str:
    """The statement that binds the same name; empty if there is none."""
    name, alias = node.names[0].name, node.names[0].asname
    if len(node.names) > 1 or ("." in name and alias is None):
        return ""
    return f"import {HOME}.{name} as {alias}" if alias else f"from {HOME} import {name}"


def _names_module_in_string(node: ast.Call | ast.List | ast.Tuple) -> bool:
    """Whether a module that moves is named in a call of import_module, or after "-m" in a row."""
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        texts = node.args if called in _NAMING else []
    else:
        options = [isinstance(one, ast.Constant) and one.value == "-m" for one in node.elts]
        texts = node.elts[options.index(True) + 1 :] if any(options) else []
    return any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) and _moves(one.value)
        for one in texts
    )


def _check_imports(text: str, tree: Path) -> None:
    """Raises LayoutError when the module imports one of ours that the tree does not have."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            place = tree.joinpath(*name.split("."))
            ours = _moves(name) or (tree / name.partition(".")[0]).is_dir()
            if ours and not (place.is_dir() or place.with_suffix(".py").is_file()):
                raise LayoutError(f"line {node.lineno}: there is no module {name}")
