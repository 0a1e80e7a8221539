"""`git clean -fdx` under a running crew: one command brings it back, and what was finished is not done again."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest

from tests.conftest import git, until
from tests.journeys.crews import APPROVE, BIN, LIMIT, Crew

GOAL = "# Every file is there\n\nAnd each of them ends with a newline.\n"
AGENT = """\
liza ready > "$NOTES/brief-$LIZA_RUN"
case "$LIZA_RUN" in
coder-*)
    if ! grep -q '^COMMITTED' "$NOTES/brief-$LIZA_RUN"; then
        echo "$LIZA_TASK" >> done.txt
        git add done.txt
        git commit -q -m "$LIZA_TASK is done"
        echo > "$NOTES/at-$LIZA_RUN"
        cat "$NOTES/gate" > /dev/null
    fi
    liza submit ;;
*)
"""


def cleaned(crew: Crew) -> bool:
    """Whether `git clean` took everything away: while a supervisor writes there a person has to say it again."""
    subprocess.run(["git", "clean", "-q", "-fdx"], cwd=crew.root, capture_output=True)
    return not crew.paths.state.exists() and not crew.paths.tx.exists()


@pytest.mark.campaign
def test_one_command_restores_the_board_and_goal_after_git_clean(crew: Crew) -> None:
    (crew.paths.specs / "goal.md").write_text(GOAL)
    crew.gate("gate")
    crew.add("t1")
    program = crew.script("agent", AGENT + APPROVE + ";; esac\n", ready=False)
    supervisors = [crew.agent(name, program) for name in ("coder-1", "code-reviewer-1")]
    crew.wait_note("at-coder-1.1")
    until(
        lambda: "status: CLAIMED" in git(crew.root, "show", "refs/liza/blackboard:state.yaml"), "the claim in history"
    )
    # A supervisor that notices leaves by itself, and may write once more before that; these cannot yet.
    for supervisor in supervisors:
        supervisor.process.send_signal(signal.SIGSTOP)
    until(lambda: cleaned(crew), "a .liza that is gone")

    told = crew.liza("status", code=5)
    assert told.endswith("next: liza restore --last-good --stop\n")
    assert re.search(r"\. Still running: .*(/session|locks/supervisor-[\w-]+)\.lock", told)
    examined = crew.run("doctor")
    assert (examined.returncode, "liza restore --last-good --stop" in examined.stdout) == (5, True)
    assert crew.liza("restore", "--last-good", code=1).endswith("next: liza restore --last-good --stop\n")

    for supervisor in supervisors:
        supervisor.process.send_signal(signal.SIGCONT)
    told = crew.liza("restore", "--last-good", "--stop")
    for supervisor in supervisors:
        supervisor.wait_gone()
    assert crew.living() == []
    *ended, again, laid, counting, step = told.splitlines()
    # None where all of them were quicker.
    assert re.fullmatch(
        "(ended processes that still ran here: ((code-reviewer-1|coder-1|coder-1.1)(, )?)+)?", "".join(ended)
    )
    assert again.startswith("revision ")
    assert "the board and .liza/specs/goal.md" in laid
    assert counting.startswith("the settings in effect: ")
    assert (crew.paths.specs / "goal.md").read_text() == GOAL
    shown = crew.json("status")
    assert [one["kind"] for one in shown["waiting"]] == []
    assert [one["why"] for one in shown["agents"]] == [
        "it holds t1, and no supervisor runs: " + step.removeprefix("next: "),
        "no supervisor runs",
    ]

    crew.liza(*step.removeprefix("next: liza ").split(), "-d", "--planners", "0")
    crew.wait_status("t1", "MERGED")
    crew.liza("down")
    assert crew.git("show", "integration:done.txt") == "t1"
    assert "t1 is done" in (crew.notes / "brief-coder-1.2").read_text()
    assert crew.task("t1").iteration == 1


@pytest.mark.campaign
def test_git_clean_under_up_gives_all_agents_one_command(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("t1")
    slots = crew.paths.slots
    program = crew.script("agent", AGENT + APPROVE + ";; esac\n", ready=False)
    log = crew.notes / "up.log"
    with log.open("wb") as out:
        words = [str(BIN / "liza"), "up", "--program", program]
        up = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crew.children.append(up)
    crew.wait_note("at-coder-1.1")
    until(lambda: cleaned(crew), "a .liza that is gone")
    assert up.wait(timeout=LIMIT) != 0

    said = log.read_text()
    step = "liza restore --last-good --stop"
    told = f"{crew.root}/.liza or a part of it was deleted under the crew; the work is in {slots} and on task/*"
    assert f"all stopped; {told}. Go on: {step}\n" in said
    left = [line.split("liza-agent: ")[1] for line in said.splitlines() if "liza-agent: " in line]
    assert set(left) == {told}
    # An agent that looks while git still deletes says first that the board is gone, with the step for that in brackets.
    assert set(re.findall(r"(?<!\()next: (.*)", said)) == {step}, said
    assert "liza status" not in said
    assert "liza init" not in said
    assert "Errno" not in said
    crew.liza(*step.split()[1:])
    assert crew.json("status")["waiting"] == []
