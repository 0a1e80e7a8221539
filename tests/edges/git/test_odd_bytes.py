"""Names, contents and messages that are not UTF-8, in all that Liza records and shows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from liza.git.branch_moves import find_blocking
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges

NAMES = [
    pytest.param(b"x\xff", r"x\xff", id="latin-1"),
    variant(b"\xed\xb3\xbf", r"\xed\xb3\xbf", name="a surrogate in UTF-8"),
    variant(b"a\nb\x1b[31m", r"a\nb\x1b[31m", name="control characters"),
    variant("a\u202eb\u2028".encode(), r"a\u202eb\u2028", name="direction"),
    variant(b"d\xe9/-rf \xe9*", r"d\xe9/-rf \xe9*", name="below a directory"),
]
"""Names of files, and how they are shown."""


def written(there: Path, name: bytes, content: bytes) -> None:
    path = there / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def approved(crew: Merges, task: str, name: bytes) -> None:
    def work(there: Path) -> None:
        written(there, name, b"\xe9 by " + task.encode() + b"\n")
        commit_all(there, "work")

    crew.approved(task, work=work)


def liza(crew: Merges, *words: str) -> subprocess.CompletedProcess[bytes]:
    program = Path(__file__).parents[3] / "bin" / "liza"
    return subprocess.run([program, *words], cwd=crew.root, capture_output=True, check=False)


def shown(crew: Merges, *words: str) -> str:
    """What a command prints, which is UTF-8 and without errors."""
    result = liza(crew, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


def both(crew: Merges, *words: str) -> str:
    """What a command prints as text, which it can print as JSON too."""
    json.loads(shown(crew, *words, "--json"))
    return shown(crew, *words)


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "escaped"), NAMES)
def test_a_conflict_in_oddly_named_files_blocks_no_other_task(crew: Merges, name: bytes, escaped: str) -> None:
    approved(crew, "a", name)
    approved(crew, "b", name)
    approved(crew, "c", b"c2")
    assert (crew.merge("a"), crew.merge("b"), crew.merge("c")) == ("", "", "")
    assert (crew.status("a"), crew.status("b"), crew.status("c")) == ("MERGED", "INTEGRATION_FAILED", "MERGED")
    first, *hunks = crew.failure("b").splitlines()
    assert first == f"conflict with integration in {escaped}"
    assert f"--- {escaped}" in hunks
    assert r"\xe9 by a" in hunks
    for words in (["task", "show", "b"], ["status"], ["queue"], ["history"], ["history", "b"], ["diff", "b"]):
        both(crew, *words)


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "escaped"), NAMES)
def test_a_blocking_file_of_any_name_is_named_until_removed(crew: Merges, name: bytes, escaped: str) -> None:
    git(crew.root, "checkout", "-q", "integration")
    approved(crew, "a", name)
    written(crew.root, name, b"mine")
    path = crew.root / os.fsdecode(name)
    assert crew.merge("a") == ""
    merging = crew.task("a").merging
    assert merging is not None
    assert merging.waiting == (escaped,)
    assert escaped in " ".join(crew.alarms().values())
    for words in (["task", "show", "a"], ["status"], ["queue"], ["diff", "a"]):
        both(crew, *words)
    assert find_blocking(crew.crew.git, "integration", merging).files == (os.fsdecode(name),)
    path.unlink()
    assert find_blocking(crew.crew.git, "integration", merging).files == ()
    assert crew.merge("a") == ""
    assert crew.status("a") == "MERGED"
    assert path.read_bytes() == b"\xe9 by a\n"


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "escaped"), NAMES)
def test_land_names_a_blocking_file_of_any_name(crew: Merges, name: bytes, escaped: str) -> None:
    approved(crew, "a", name)
    assert crew.merge("a") == ""
    written(crew.root, name, b"mine")
    for words in (["land", "--merge"], ["land", "--merge", "--json"]):
        result = liza(crew, *words)
        assert result.returncode == 1
        assert escaped in result.stderr.decode().replace("\\\\", "\\")
    (crew.root / os.fsdecode(name)).unlink()
    shown(crew, "land", "--merge")


@pytest.mark.campaign
def test_commit_messages_that_are_not_utf_8_are_shown_escaped(crew: Merges) -> None:
    approved(crew, "a", b"a.txt")
    commit = subprocess.check_output(["git", "cat-file", "commit", "task/a"], cwd=crew.root)
    made = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    odd = subprocess.check_output(made, cwd=crew.root, input=commit.replace(b"work", b"caf\xe9")).decode().strip()
    git(crew.root, "branch", "-f", "integration", odd)
    assert r"caf\xe9" in both(crew, "status")
    assert r"caf\xe9" in crew.alarms()["integration_moved"]
    shown(crew, "sync", "integration")
    assert r"caf\xe9" in crew.alerts()


@pytest.mark.campaign
def test_a_diff_shows_names_and_contents_outside_utf_8(crew: Merges) -> None:
    there = crew.claimed("a")
    written(there, b"n\xe9w", b"x")
    written(there, b"a.txt", b"caf\xe9\n")
    text = both(crew, "diff", "a")
    assert r"+caf\xe9" in text
    assert r"untracked: n\xe9w" in text
    assert json.loads(shown(crew, "diff", "a", "--json"))["untracked"] == [r"n\xe9w"]
