"""A small board, and changes of it, for the contract suite. Run as a program, it writes notes in a loop."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.board import archived_entries
from liza.board.contract import Board, Transaction
from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.model.model import HumanNote, State, Task
from liza.model.paths import Paths
from liza.system.clock import SystemClock

replace = msgspec.structs.replace
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FIRST = """\
# The board of a test.
version: 1
revision: 1
goal:
  id: g
  status: IN_PROGRESS
mood: good # no field of the model
tasks:
  # about t1
  - id: "t1"
    status: UNCLAIMED # a comment
    description: The first
    spec_ref: specs/a.md
    done_when: it works
    scope: all
    color: blue
  - id: "t2"
    status: UNCLAIMED
    description: The second
    spec_ref: specs/a.md
    done_when: it works
    scope: all
  - id: "t3"
    status: ABANDONED
    description: The third # left
    spec_ref: specs/a.md
    done_when: it works
    scope: all
agents:
  coder-1:
    role: coder
    status: IDLE
"""
MERGED = f"""\
  - id: "t4"
    status: MERGED
    description: The fourth
    spec_ref: specs/a.md
    done_when: it works
    scope: all
    review_commit: {"b" * 40}
    approved_by: code-reviewer-1
    merge_commit: {"a" * 40}
"""


def task_of(state: State, task_id: str) -> Task:
    """Return a task that the board has."""
    task = state.task(task_id)
    assert task is not None
    return task


def describe(tx: Transaction, text: str, task_id: str = "t1") -> None:
    """Give a task another description."""
    tx.state = tx.state.with_task(replace(task_of(tx.state, task_id), description=text))


def say(board: Board, text: str) -> int:
    """Write a note; return the revision."""
    with board.transaction("human", "note") as tx:
        note = HumanNote(timestamp=NOW, message=text)
        tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, note))
    assert tx.revision is not None
    return tx.revision


def beat(board: Board, second: int) -> None:
    """Renew the heartbeat of coder-1."""
    with board.heartbeat("coder-1") as tx:
        agent = replace(tx.state.agents["coder-1"], heartbeat=NOW.replace(second=second))
        tx.state = tx.state.with_agent("coder-1", agent)


def move(board: Board, *ids: str) -> None:
    """Move closed tasks to the archive."""
    with board.transaction("human", "archive") as tx:
        texts = archived_entries.movable_texts(tx.document, ids)
        tasks = [task for task in tx.before.tasks if task.id in texts]
        counted = tx.before.archived
        totals = ArchiveTotals(counted.counts, counted.verdicts)
        tx.state = archiving.move_to_archive(tx.before, tasks, totals)
        tx.moved = {task.id: texts[task.id] for task in tasks}


def messages(state: State) -> list[str]:
    """Return the notes on the board."""
    return [note.message for note in state.human_notes]


def start_writer(store: str, root: Path, name: str, count: int) -> subprocess.Popen[str]:
    """Start a process that writes ``count`` notes, and prints the number of each that is written."""
    words = [sys.executable, "-m", "tests.edges.board.contract.changes", store, str(root), name, str(count)]
    return subprocess.Popen(words, cwd=Path(__file__).parents[4], stdout=subprocess.PIPE, text=True)


def _write(store: str, root: str, name: str, count: str) -> None:
    from tests.edges.board.contract.stores import STORES

    board = STORES[store].open(Paths(Path(root)), SystemClock())
    for number in range(int(count)):
        say(board, f"{name} {number}")
        print(number, flush=True)


if __name__ == "__main__":
    _write(*sys.argv[1:])
