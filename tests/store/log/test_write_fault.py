"""store/log/disk.py: whether a file can be written, tried with a file that has no name."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from store.log.disk import write_fault
from tests.support.open_files import open_files


def test_a_directory_that_can_be_written_in_is_left_as_it_is(tmp_path: Path) -> None:
    assert write_fault(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert open_files(tmp_path) == 0


def test_a_directory_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    fault = write_fault(tmp_path / "gone")
    assert fault is not None
    assert fault.errno == errno.ENOENT


def test_a_file_system_that_takes_no_files_is_a_fault() -> None:
    fault = write_fault(Path("/proc/sys"))
    # Which one is the file system's to choose; some cannot have such files at all.
    assert fault is None or fault.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_write_that_fails_is_a_fault_and_lets_go_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_file: int, _data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)
    fault = write_fault(tmp_path)
    assert fault is not None
    assert fault.errno == number
    assert open_files(tmp_path) == 0


def test_a_process_without_descriptors_says_nothing_of_the_disk(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def take_all() -> None:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[0]), before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            take_all()
        assert write_fault(tmp_path) is None
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
