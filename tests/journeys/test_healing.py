"""`liza watch --heal`: agents whose supervisor was killed get a new one, and left-over sessions are ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from liza.system import lock_holders
from tests.journeys.crews import BIN, LIMIT, WORK, Crew, started

WAITS = """\
echo "$$" > "$NOTES/at-$LIZA_RUN"
read line < "$NOTES/gate"
"""


def heal(crew: Crew) -> subprocess.Popen[bytes]:
    with (crew.notes / "heal.log").open("ab") as out:
        process = subprocess.Popen(
            [str(BIN / "liza"), "watch", "--heal"], cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    crew.children.append(process)
    return process


def wait_healed(crew: Crew, text: str) -> None:
    log = crew.notes / "heal.log"
    crew.wait(lambda _: text in " ".join(log.read_text().split()), text)


def kill_supervisor(crew: Crew, agent: str) -> None:
    crew.wait_supervised(agent)
    pid = lock_holders.find_holder(crew.paths.supervisor_lock(agent))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(LIMIT)


def test_a_session_that_is_left_over_without_a_supervisor_is_ended(tmp_path: Path) -> None:
    with started(tmp_path, poll_interval=1, grace=30) as crew:
        crew.gate("gate")
        crew.add("t1")
        supervisor = crew.agent("coder-1", crew.script("coder", WORK + WAITS))
        crew.wait_note("at-coder-1.1")
        supervisor.kill()
        crew.configure(grace=1)
        child = crew.session("coder-1.1")["child"]["pid"]
        process = heal(crew)
        wait_healed(crew, "coder-1.1 has closed its work and still runs: the session was ended")
        assert not Path(f"/proc/{child}").exists()
        end(process)
        # The work is kept, and its slot too.
        assert crew.status("t1") == "READY_FOR_REVIEW"
        assert (crew.root / ".worktrees" / "t1" / "t1.txt").exists()


@pytest.mark.campaign
def test_work_that_stalls_three_times_is_continued_in_its_slot_and_then_escalated(tmp_path: Path) -> None:
    with started(tmp_path, poll_interval=1) as crew:
        crew.gate("gate")
        crew.add("t1")
        crew.agent("coder-1", crew.script("coder", WAITS))
        crew.wait_note("at-coder-1.1")
        slot = crew.task("t1").worktree
        process = heal(crew)
        for number in (1, 2, 3):
            kill_supervisor(crew, "coder-1")
            crew.kill_session(f"coder-1.{number}")
            if number == 2:
                # Killed between two steps: the next one counts on.
                process.kill()
                process = heal(crew)
            wait_healed(crew, f"it was started again ({number} of 3)")
            crew.wait_note(f"at-coder-1.{number + 1}")
        kill_supervisor(crew, "coder-1")
        crew.kill_session("coder-1.4")
        wait_healed(crew, "it is not started again")
        end(process)
        assert crew.task("t1").worktree == slot
        notes = [note.message for note in crew.state().human_notes]
        assert len(notes) == 1
        assert "its supervisor was started 3 times" in notes[0]
        assert [words for words in crew.living() if "liza-agent" in words] == []
