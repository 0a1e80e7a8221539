"""Files that may be hostile: whatever is at the path, an open neither blocks nor follows a link, and has one error."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.model.errors import NotRegularFile
from liza.system import atomic, untrusted_files
from tests.edges.house.test_no_files import ODD

OPENS: dict[str, Callable[[Path], object]] = {
    "read": untrusted_files.read,
    "read_if_exists": untrusted_files.read_if_exists,
    "open to append": lambda path: untrusted_files.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
}


@pytest.mark.parametrize("put", ODD.values(), ids=ODD)
@pytest.mark.parametrize("attempt", OPENS.values(), ids=OPENS)
@pytest.mark.parametrize("follow", [False, True], ids=["no link", "through links"])
def test_an_irregular_file_is_named_with_the_command_moving_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], object], attempt: str, follow: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "record"
    put(path)
    with pytest.raises(NotRegularFile) as caught:
        untrusted_files.read(path, follow_links=True) if follow else attempt(path)  # type: ignore[operator]
    assert (caught.value.message, caught.value.hint) == (f"{path} is not a regular file", f"mv {path} {path}.odd")


def test_a_link_is_followed_only_on_the_callers_request(tmp_path: Path) -> None:
    path = tmp_path / "link"
    (tmp_path / "file").write_bytes(b"text")
    path.symlink_to("file")
    assert untrusted_files.read(path, follow_links=True) == b"text"
    with pytest.raises(NotRegularFile):
        untrusted_files.read(path)
    with pytest.raises(NotRegularFile):
        untrusted_files.open_regular(path, os.O_WRONLY | os.O_TRUNC)
    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_file_below_a_directory_is_read_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"text")
    (tmp_path / "d" / "link").symlink_to("f")
    (tmp_path / "other").symlink_to("d")
    assert untrusted_files.read_below(tmp_path, "d/f", 100) == b"text"
    assert untrusted_files.read_below(tmp_path, "d/g", 100) is None
    assert untrusted_files.list_below(tmp_path, "d") == ["f", "link"]
    for name, limit in (("d/f", 3), ("d/link", 100), ("d", 100)):
        with pytest.raises(NotRegularFile):
            untrusted_files.read_below(tmp_path, name, limit)
    with pytest.raises(NotADirectoryError):
        untrusted_files.read_below(tmp_path, "other/f", 100)
    with pytest.raises(NotADirectoryError):
        untrusted_files.list_below(tmp_path, "other")


def test_a_proc_file_without_a_size_is_read_within_limits() -> None:
    path = Path("/proc/self/status")
    assert untrusted_files.read(path).startswith(b"Name:")
    with pytest.raises(NotRegularFile, match="has more than 100 bytes"):
        untrusted_files.read(path, 100)


@pytest.mark.parametrize("put", [value for name, value in ODD.items() if name != "a directory"])
def test_an_atomic_write_replaces_its_target_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "record"
    put(path)
    atomic.write(path, b"new", 0o640)
    assert (path.read_bytes(), stat.filemode(path.lstat().st_mode)) == (b"new", "-rw-r-----")


def test_a_failed_replacement_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "record"
    atomic.write(path, b"old")
    with pytest.raises(ZeroDivisionError), atomic.replacing(path) as file:
        file.write(b"half" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
