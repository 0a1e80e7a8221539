"""A .liza of which a part was deleted under a running crew: one condition, one command, and nothing runs beside it."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.conftest import until
from tests.journeys.crews import APPROVE, Crew

GOAL = "# Every file is there\n\nAnd each of them ends with a newline.\n"
AGENT = 'liza ready\necho at > "$NOTES/at-$LIZA_RUN"\ncat "$NOTES/gate" > /dev/null\n'
STEP = "liza restore --last-good --stop"


def damage(crew: Crew) -> None:
    """As `git clean -fdx` leaves it that a supervisor wrote into: the board is there, and nothing else."""

    def is_left_alone() -> bool:
        others = [path for path in crew.paths.liza.iterdir() if path.name.partition(".")[0] not in ("state", "tx")]
        for path in others:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return not others

    # A supervisor that has not noticed yet may write between two looks.
    until(is_left_alone, "a .liza with nothing but the board")


@pytest.mark.campaign
def test_a_partly_deleted_liza_needs_one_command_to_be_repaired(crew: Crew) -> None:
    (crew.paths.specs / "goal.md").write_text(GOAL)
    crew.gate("gate")
    crew.add("t1")
    program = crew.script("agent", AGENT + APPROVE, ready=False)
    coder, reviewer = (crew.agent(name, program) for name in ("coder-1", "code-reviewer-1"))
    crew.wait_note("at-coder-1.1")
    crew.wait_supervised("code-reviewer-1")
    coder.process.send_signal(signal.SIGSTOP)
    damage(crew)

    until(lambda: reviewer.process.poll() is not None, "the end of a supervisor without a lock")
    assert reviewer.process.returncode != 0
    assert f"{crew.paths.liza} or a part of it was deleted under the crew; the work is in " in reviewer.said()
    assert reviewer.said().count("next: ") == reviewer.said().count(f"next: {STEP}") == 1
    shown = crew.json("status")
    (alert,) = shown["waiting"]
    assert (alert["kind"], alert["next"]) == ("damaged", STEP)
    (why,) = (one["why"] for one in shown["agents"] if one["id"] == "coder-1")
    assert why == f"it still runs, but its lock file was deleted: {STEP}"
    assert "still running: coder-1.1/session.lock, locks/supervisor-coder-1.lock" in alert["message"]
    checked = crew.run("doctor").stdout
    assert checked.count("was deleted: ") == 1
    assert STEP in checked
    for words in (["up", "-d", "--program", program], ["doctor", "--fix"], ["down", "--purge"]):
        assert crew.run(*words).stderr.rstrip().endswith(f"next: {STEP}"), words
    assert crew.run("restore", "--last-good").stderr.rstrip().endswith(f"next: {STEP}")
    assert not crew.paths.pins.exists()
    assert crew.paths.state.exists()
    assert len([one for one in crew.living() if "liza-agent" in one]) == 1

    coder.process.send_signal(signal.SIGCONT)
    assert coder.wait_gone() != 0
    crew.wait(lambda _: not crew.living(), "the end of the session")
    assert not crew.paths.runs.exists()
    told = crew.liza("restore", "--last-good", "--stop")
    assert "the missing parts of .liza were recreated" in told
    assert (crew.paths.specs / "goal.md").read_text() == GOAL
    assert crew.json("status")["waiting"] == []
    assert [one.event for one in crew.task("t1").history if one.event in ("crash", "held up")] == []
    assert crew.liza("down", "--purge")
    assert not crew.paths.liza.exists()


def test_a_board_with_only_its_seal_left_is_repaired(crew: Crew) -> None:
    crew.add("t1")
    reviewer = crew.agent("code-reviewer-1", crew.script("agent", APPROVE))
    crew.wait_supervised("code-reviewer-1")
    reviewer.process.send_signal(signal.SIGSTOP)
    damage(crew)
    crew.paths.state.unlink()
    assert (crew.paths.tx / "seal").exists()

    told = crew.liza("status", code=5)
    assert "Still running: locks/supervisor-code-reviewer-1.lock" in told
    assert told.endswith(f"next: {STEP}\n")
    reviewer.process.send_signal(signal.SIGCONT)
    crew.liza(*STEP.split()[1:])
    reviewer.wait_gone()
    assert crew.json("status")["waiting"] == []
    assert crew.status("t1") == "UNCLAIMED"
