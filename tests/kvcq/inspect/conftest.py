"""A closed store, for tests that plant faults in a copy of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.checking import make_checked

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checked(tmp_path_factory.mktemp("template") / "store")


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "store"
    shutil.copytree(template, copy)
    return copy
