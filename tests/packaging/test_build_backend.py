"""What a wheel is laid out of: the rooms below `kvcq`, every import of them changed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from build_backend import MOVED, LayoutError, lay_out, moved_imports
from server.version import VERSION

ROOT = Path(__file__).parents[2]

PROJECT = """
[project]
readme = "README.md"
license-files = ["LICENSE"]
dependencies = ["kvcq-client==1.2.3"]
[project.scripts]
kvcq = "server.cli.main:main"
[tool.hatch.build.targets.wheel]
packages = ["store", "kvcq", "server"]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small project of the repository's layout."""
    files = {
        "pyproject.toml": PROJECT,
        "README.md": "",
        "LICENSE": "",
        "store/flush.py": "X = 1\n",
        "store/__init__.py": "",
        "kvcq/__init__.py": "",
        "kvcq/keys.py": "from store.flush import X\n",
        "server/app.py": "import store\nfrom kvcq.keys import X\n",
    }
    root = tmp_path / "source"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("from store import flush", "from kvcq.store import flush"),
        ("from store.flush import (\n    X,\n)", "from kvcq.store.flush import (\n    X,\n)"),
        ("import server", "from kvcq import server"),
        ("import server as s  # why", "import kvcq.server as s  # why"),
        ("import store.flush as f", "import kvcq.store.flush as f"),
        (
            "if 1:\n    from migration.plan import Plan",
            "if 1:\n    from kvcq.migration.plan import Plan",
        ),
        ("from kvcq.store_dir import X", "from kvcq.store_dir import X"),
        ("from storehouse import store", "from storehouse import store"),
        ("text = 'from store import flush'", "text = 'from store import flush'"),
        ("'ä\x0c\u2028'\nimport server", "'ä\x0c\u2028'\nfrom kvcq import server"),
    ],
)
def test_imports_of_rooms_that_move_are_changed(line: str, moved: str) -> None:
    assert moved_imports(line) == moved


@pytest.mark.parametrize(
    "line",
    [
        "import store.flush",  # binds `store`, which is no top-level name any more
        "import store, json",
        "x = 1; import store",
        "import_module('server.cli.online.put')",
        "importlib.import_module('server')",
        "Popen([sys.executable, '-m', 'server', 'serve'])",
        "Popen((sys.executable, '-m', 'server', 'serve'))",
        "start_module('server.readers.process')",
    ],
)
def test_what_cannot_be_changed_is_refused(line: str) -> None:
    with pytest.raises(LayoutError, match="line 1"):
        moved_imports(line)


def test_rooms_lie_below_kvcq(source: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    lay_out(source, tree)
    assert sorted(one.name for one in tree.iterdir()) == [
        *("LICENSE", "README.md", "kvcq", "pyproject.toml")
    ]
    assert (tree / "kvcq/keys.py").read_text() == "from kvcq.store.flush import X\n"
    assert (tree / "kvcq/server/app.py").read_text().startswith("from kvcq import store\n")
    assert '"kvcq.server.cli.main:main"' in (tree / "pyproject.toml").read_text()


def test_client_is_required_from_a_checkout_and_by_name_without_one(
    source: Path, tmp_path: Path
) -> None:
    lay_out(source, tmp_path / "released")
    assert '"kvcq-client==1.2.3"' in (tmp_path / "released/pyproject.toml").read_text()
    client = source / "kvcq_client"
    client.mkdir()
    lay_out(source, tmp_path / "local")
    assert f'"kvcq-client @ {client.as_uri()}"' in (tmp_path / "local/pyproject.toml").read_text()


@pytest.mark.parametrize(
    "line", ["from store.flash import X", "from kvcq.server.gone import X", "import kvcq.gone as g"]
)
def test_an_import_without_its_module_is_refused(source: Path, tmp_path: Path, line: str) -> None:
    (source / "server/app.py").write_text(line)
    with pytest.raises(LayoutError, match=r"kvcq/server/app\.py: line 1: there is no module"):
        lay_out(source, tmp_path / "tree")


def test_a_package_in_the_way_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "kvcq/store").mkdir()
    with pytest.raises(LayoutError, match="kvcq/store"):
        lay_out(source, tmp_path / "tree")


@pytest.mark.slow
def test_the_project_itself_can_be_laid_out(tmp_path: Path) -> None:
    lay_out(ROOT, tmp_path)
    top = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert top == {"kvcq", "kvcq_bench", "pyspark_kvcq"}
    for path in tmp_path.rglob("*.py"):
        before = path.relative_to(tmp_path)
        if before.parts[1] in MOVED:
            before = before.relative_to("kvcq")
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
        assert text.count("\n") == (ROOT / before).read_text(encoding="utf-8").count("\n")


def test_both_distributions_have_one_version_and_one_license() -> None:
    server = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    client = (ROOT / "kvcq_client/pyproject.toml").read_text(encoding="utf-8")
    assert f'"kvcq-client=={VERSION}"' in server
    assert f'\nversion = "{VERSION}"\n' in server
    assert f'\nversion = "{VERSION}"\n' in client
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "kvcq_client/LICENSE").read_bytes()
