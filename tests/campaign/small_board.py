"""A small board for campaigns, armed children that end at a fault point, and what must be true of what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from liza.board import recorded_mark, revision_texts, revisions
from liza.board.file_store import revision_journal, write_intent
from liza.board.file_store.file_board import FileBoard
from liza.config import confirmed_settings
from liza.crew import recorder
from liza.crew.crew import Crew
from liza.git import board_history
from liza.model.errors import LizaError
from liza.model.model import HumanNote, State
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.campaign.forks import arm
from tests.conftest import git

FIRST = """\
version: 1
revision: 1
goal:
  id: g
  status: IN_PROGRESS
tasks:
  - id: "t1"
    status: UNCLAIMED # a comment
    description: The first
    spec_ref: specs/a.md
    done_when: it works
    scope: all
  - id: "t2"
    status: UNCLAIMED
    description: The second
    spec_ref: specs/a.md
    done_when: it works
    scope: all
agents:
  coder-1:
    role: coder
    status: IDLE
"""


def opened(root: Path) -> FileBoard:
    """The board as a process that was just started has it."""
    return FileBoard(Paths(root), SystemClock())


def repository(root: Path) -> None:
    """A repository as a crew has it, made in a new directory."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    Paths(root).liza.mkdir()
    confirmed_settings.create_pins(Paths(root))


def say(board: FileBoard, text: str) -> int:
    """A note on the board, acknowledged with its revision."""
    with board.transaction("human", "note") as tx:
        one = HumanNote(timestamp=SystemClock().now(), message=text)
        tx.state = msgspec.structs.replace(tx.state, human_notes=(*tx.state.human_notes, one))
    assert tx.revision is not None
    return tx.revision


def beat(board: FileBoard) -> None:
    """A heartbeat of coder-1, a second later than the last."""
    with board.heartbeat("coder-1") as tx:
        agent = tx.state.agents["coder-1"]
        moment = SystemClock().now()
        tx.state = tx.state.with_agent("coder-1", msgspec.structs.replace(agent, heartbeat=moment))


def messages(state: State) -> list[str]:
    return [one.message for one in state.human_notes]


def crew_of(root: Path) -> Crew:
    return Crew(Paths(root), SystemClock())


# ── children ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def child(work: Callable[[], object], fault: str = "", trace: Path | None = None) -> int:
    """Does the work in a child with this ``LIZA_FAULT``; 0, 9 where it was killed, 4 where it was refused by name,
    and 99 for an error without a name."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            arm(fault, trace)
            work()
            code = 0
        except LizaError as error:
            code = 4 if error.hint else 98
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def passed(work: Callable[[], object], trace: Path) -> list[str]:
    """Every point that the work passes, as ``name#count``."""
    trace.unlink(missing_ok=True)
    assert child(work, trace=trace) == 0
    counts: dict[str, int] = {}
    found = []
    for line in trace.read_text().splitlines():
        name = line.split()[1]
        counts[name] = counts.get(name, 0) + 1
        found.append(f"{name}#{counts[name]}")
    return found


def killed(code: int) -> bool:
    return code == signal.SIGKILL


# ── what must be true ────────────────────────────────────────────────────────────────────────────────────────────────


def journal_of(paths: Paths) -> dict[int, str]:
    """Revisions that came to be with their sha; raises where the journal has a gap, a double or a void of nothing."""
    shas: dict[int, str] = {}
    gone: set[int] = set()
    highest = 0
    for line in paths.journal.read_bytes().split(b"\n"):
        if not line or line.startswith(b"#"):
            continue
        said = json.loads(line.removeprefix(b"- "))
        if "void" in said:
            assert said["void"] == highest, f"a void of {said['void']} behind revision {highest}"
            assert said["void"] not in gone, f"revision {said['void']} is void twice"
            gone.add(said["void"])
            shas.pop(said["void"], None)
        else:
            assert said["revision"] == highest + 1, f"revision {said['revision']} behind {highest}"
            highest = said["revision"]
            shas[highest] = said["sha256"]
    return shas


def texts_of(paths: Paths) -> dict[int, str]:
    """The texts of all revisions that can be rebuilt from the journal."""
    return {
        line.revision: text for line, text in revision_texts.rebuild_texts(revision_journal.iter_lines(paths.journal))
    }


def waiting_of(paths: Paths) -> list[int]:
    """The revisions that wait for the history."""
    return [
        record.revision
        for record in recorded_mark.list_waiting(paths, revision_journal.iter_newest_first(paths.journal))
    ]


def check(root: Path) -> State:
    """The board of a quiet crew, after everything about it was compared with everything else."""
    paths = Paths(root)
    state = opened(root).read()
    shas = journal_of(paths)
    sealed = write_intent.read_intent(paths.write_intent)
    data = paths.state.read_bytes()
    assert sealed is not None
    assert revisions.sha(data) == sealed.after
    assert max(shas) == state.revision
    kept = {number: revisions.sha(text.encode()) for number, text in texts_of(paths).items()}
    assert kept == shas, f"texts of {sorted(kept)}, journal {sorted(shas)}"
    return state


def recorded(root: Path) -> dict[int, str]:
    """What history has after recording, each revision with the sha of its text; git itself finds nothing wrong."""
    crew = crew_of(root)
    recorder.record_history(crew)
    assert waiting_of(crew.paths) == []
    return history_of(root)


def history_of(root: Path) -> dict[int, str]:
    """Each recorded revision with the sha of its text, by one git process."""
    crew = crew_of(root)
    entries = board_history.list_revisions(crew.git, None, 1 << 20)
    asked = "".join(f"{entry.commit}:{board_history.BOARD_FILE}\n" for entry in entries)
    done = subprocess.run(
        ["git", "cat-file", "--batch"], cwd=root, input=asked.encode(), capture_output=True, check=True
    ).stdout
    found: dict[int, str] = {}
    place = 0
    for entry in entries:
        end = done.index(b"\n", place)
        size = int(done[place:end].split()[2])
        found[entry.revision] = revisions.sha(done[end + 1 : end + 1 + size])
        place = end + size + 2
    numbers = [entry.revision for entry in entries]
    assert numbers == sorted(set(numbers), reverse=True), f"history is out of order: {numbers}"
    git(root, "fsck", "--strict", "--no-dangling")
    return found
