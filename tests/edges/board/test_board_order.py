"""In which order a change of the board reaches the disk, as the kernel saw it.

What must be durable before what, and which windows a power cut may fall into (a kill is another matter: what was
written stays, and every step of it is tried elsewhere):

- The bytes of ``next`` are on the disk before anything else is begun, so no board is ever empty or torn.
- The journal's line is on the disk (fdatasync) before the seal is written. Its directory entry is made with the first
  board, and the fsync of ``.liza`` at the end of that very change covers it.
- The seal is renamed into place without a sync of its own, which costs a millisecond. It is on the same disk before the
  board is: the fsync of ``.liza`` that follows takes it along wherever the file system keeps its journal in order
  (ext4, xfs, btrfs). Where one does not, a power cut can leave

  - the new board with the seal of the one before, or with an empty one: the journal's newest sha is the board's, so the
    seal is made again from it;
  - the old board with the new seal: its ``before`` is the board, and ``next`` is there, as after a kill.

- The entry of ``.liza`` in its own parent is synced by nobody: a power cut in the seconds after the first board may
  take the whole crew, on which nobody has worked yet.
- A change is acknowledged after the fsync of ``.liza``: an acknowledged change is a durable one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from liza.board.file_store import revision_journal
from liza.board.file_store.file_board import FileBoard
from liza.model.paths import Paths
from tests.campaign.small_board import FIRST, check, history_of, messages, opened, recorded, repository, say
from tests.conftest import variant

CALLS = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"
ONE = """
import os, sys
from pathlib import Path
from tests.campaign.small_board import FIRST, opened, say
root = Path(sys.argv[1])
if sys.argv[2] == "first":
    opened(root).create(FIRST)
else:
    say(opened(root), "traced")
os.write(1, b"acknowledged")
"""
ORDER = (
    r"write\(\d+<{liza}/tx/next>",
    r"fsync\(\d+<{liza}/tx/next>",
    r"write\(\d+<{liza}/log\.yaml>",
    r"fdatasync\(\d+<{liza}/log\.yaml>",
    r"write\(\d+<{liza}/tx/seal\.new>",
    r"rename\w*\(.*tx/seal\.new\".*tx/seal\"",
    r"rename\w*\(.*tx/next\".*\.liza/state\.yaml\"",
    r"fsync\(\d+<{liza}>",
    r"write\(1<.*acknowledged",
)


@pytest.mark.needs("strace")
@pytest.mark.parametrize("which", [variant("first"), "next"])
def test_board_and_journal_reach_the_disk_before_the_rename(tmp_path: Path, which: str) -> None:
    if which == "next":
        opened(tmp_path).create(FIRST)
    trace = tmp_path / "trace"
    root = Path(__file__).parents[3]
    words = ["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", f"trace={CALLS}", sys.executable, "-c", ONE]
    done = subprocess.run(
        [*words, str(tmp_path), which],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "ptrace" in done.stderr.lower():
        pytest.skip(f"nothing can be traced here: {done.stderr.strip()}")
    assert done.stdout == "acknowledged", done.stderr
    lines = [line for line in trace.read_text().splitlines() if ".liza" in line or "acknowledged" in line]
    wanted = [re.compile(step.replace("{liza}", re.escape(f"{tmp_path}/.liza"))) for step in ORDER]
    places = [[number for number, line in enumerate(lines) if step.search(line)] for step in wanted]
    assert all(places), [step.pattern for step, found in zip(wanted, places, strict=True) if not found]
    for (before, earlier), (after, later) in zip(
        zip(wanted, places, strict=True), list(zip(wanted, places, strict=True))[1:], strict=False
    ):
        assert earlier[-1] < later[0], f"{after.pattern} was begun before {before.pattern} was over"


# ── what a power cut may leave ───────────────────────────────────────────────────────────────────────────────────────


def crew(root: Path) -> FileBoard:
    repository(root)
    board = opened(root)
    board.create(FIRST)
    say(board, "one")
    return board


def test_a_board_newer_than_its_seal_is_no_outside_edit(tmp_path: Path) -> None:
    root = tmp_path / "crew"
    board = crew(root)
    paths = Paths(root)
    old = paths.write_intent.read_bytes()
    say(board, "two")
    paths.write_intent.write_bytes(old)
    fresh = opened(root)
    assert messages(fresh.read()) == ["one", "two"]
    assert fresh.read().revision == 3
    assert fresh.take_alerts() == []
    assert {record.event for record in revision_journal.iter_newest_first(paths.journal)} == {"init", "note"}
    say(fresh, "three")
    say(fresh, "four")
    assert messages(opened(root).read()) == ["one", "two", "three", "four"]
    shas = {record.revision: record.sha256 for record in revision_journal.iter_newest_first(paths.journal)}
    assert recorded(root) == shas


@pytest.mark.parametrize("left", [b"", b"\0" * 200])
def test_an_empty_seal_beside_the_new_board_loses_nothing(tmp_path: Path, left: bytes) -> None:
    root = tmp_path / "crew"
    board = crew(root)
    paths = Paths(root)
    say(board, "two")
    paths.write_intent.write_bytes(left)
    fresh = opened(root)
    say(fresh, "three")
    assert messages(opened(root).read()) == ["one", "two", "three"]
    assert fresh.take_alerts() == []
    assert sorted(recorded(root)) == [1, 2, 3, 4]


def test_an_old_board_beside_a_newer_intent_is_repaired(tmp_path: Path) -> None:
    root = tmp_path / "crew"
    board = crew(root)
    paths = Paths(root)
    old = paths.state.read_bytes()
    say(board, "two")
    (paths.tx / "next").write_bytes(paths.state.read_bytes())
    paths.state.write_bytes(old)
    fresh = opened(root)
    say(fresh, "three")
    assert messages(check(root)) == ["one", "three"]
    assert recorded(root) == history_of(root)
    assert sorted(history_of(root)) == [1, 2, 4]
