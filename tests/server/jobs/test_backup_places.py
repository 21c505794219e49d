"""server/jobs/backup_places.py: no way leads out of the places that are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.jobs.backup_places import allowed_target
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "one" / "inner").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "one" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "one" / "loop").symlink_to(tmp_path / "one" / "loop")
    return (str(tmp_path / "one"), str(tmp_path / "two"), "s3://bucket/prefix/")


def test_what_is_within_is_allowed(places: tuple[str, ...]) -> None:
    one, two, _ = places
    for target, wanted in (
        ("", one),
        ("inner", f"{one}/inner"),
        ("new/deeper", f"{one}/new/deeper"),
        (two, two),
        (f"{two}/x", f"{two}/x"),
        (f"{one}/../two/y", f"{two}/y"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("s3://bucket/prefix/daily", "s3://bucket/prefix/daily"),
    ):
        assert allowed_target(target, places) == wanted


@pytest.mark.parametrize(
    "target",
    [
        "..",
        "../outside",
        "inner/../../outside",
        "link",
        "link/x",
        "loop/x",
        "/",
        "/etc",
        "x" * 300 + "/" + "y" * 2000,
        "a\nb",
        "a\0b",
        "s3://bucket",
        "s3://bucket/prefixed",
        "s3://bucket/prefix/../x",
        "s3://bucket/prefix/./x",
        "s3://bucket/prefix//x",
        "s3://bucket/prefix/%2e%2e/x",
        "s3://bucket/prefix/x?endpoint=http://other",
        "s3://bucket/prefix/x#y",
        "s3://user@bucket/prefix/x",
        "s3a://bucket/prefix/x",
        "gs://bucket/prefix/x",
        "file:///etc",
    ],
)
def test_what_is_not_is_refused(target: str, places: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        allowed_target(target, places)
    assert refused.value.field == "target"


def test_a_name_is_below_a_bucket_that_comes_first() -> None:
    places = ("s3://bucket/prefix",)
    assert allowed_target("", places) == "s3://bucket/prefix"
    assert allowed_target("daily", places) == "s3://bucket/prefix/daily"
    for target in ("../x", "/etc", "a/../../x"):
        with pytest.raises(InvalidArgumentError):
            allowed_target(target, places)


def test_a_server_without_a_place_says_which_setting_names_one() -> None:
    with pytest.raises(InvalidArgumentError, match=r"server\.backup_to"):
        allowed_target("", ())
