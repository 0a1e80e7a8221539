"""A person edits the board's file by hand while a crew works: well, badly, and into a text that is no YAML."""

from __future__ import annotations

import re

import pytest

from liza.programs.session import session_process
from tests.journeys.crews import APPROVE, LIMIT, WORK, Crew

SLOW = """\
liza ready > "$NOTES/brief.$LIZA_TASK"
echo "$LIZA_TASK" >> "$NOTES/order"
if [ "$LIZA_RUN" = coder-1.1 ]; then
    echo "half of it" > task-1.txt
    echo at-work > "$NOTES/at-work"
    read line < "$NOTES/gate"
fi
"""


def type_in(crew: Crew, task: str, old: str, new: str) -> None:
    """What an editor does that takes no lock: write the whole file with another line for a task."""
    text = crew.paths.state.read_text()
    head, entry, rest = re.split(rf'(?m)^(  - id: "?{task}"?\n)', text, maxsplit=1)
    assert old in rest
    crew.paths.state.write_text(head + entry + rest.replace(old, new, 1))


def begin(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("task-1", "task-2", "task-3")
    crew.agent("coder-1", crew.script("coder", SLOW + WORK))
    crew.wait_note("at-work")


def finish(crew: Crew) -> None:
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
    crew.open_gate("gate")
    for task in ("task-1", "task-2", "task-3"):
        crew.wait_status(task, "MERGED")


def test_a_persons_hand_edits_are_taken_while_the_crew_works(crew: Crew) -> None:
    begin(crew)
    type_in(crew, "task-3", "    status:", "    priority: 1\n    ticket: SHOP-7   # mine\n    status:")
    crew.wait(lambda state: state.tasks[2].priority == 1, "the new priority")
    type_in(crew, "task-2", "Write task-2", "Write task-2 in verse")
    crew.wait(lambda state: state.tasks[1].description == "Write task-2 in verse", "the new description")
    finish(crew)
    assert (crew.notes / "order").read_text().split() == ["task-1", "task-3", "task-2"]
    assert "Write task-2 in verse" in (crew.notes / "brief.task-2").read_text()
    assert "    ticket: SHOP-7   # mine\n" in crew.paths.state.read_text()
    crew.liza("validate")


@pytest.mark.campaign
def test_a_forged_end_is_named_and_the_crew_continues(crew: Crew) -> None:
    begin(crew)
    type_in(crew, "task-2", "status: UNCLAIMED", "status: MERGED")
    crew.wait_status("task-2", "MERGED")
    type_in(crew, "task-3", "    status:", "    priority: -4\n    status:")
    shown = crew.liza("status")
    assert "task-2 is MERGED, and nothing in its history led there: the last step was 'add'" in shown
    assert "liza edit" in shown
    assert "task-3: priority is -4, wanted 1 to 9" in shown
    checked = crew.run("validate")
    assert (checked.returncode, "task-3: priority is -4, wanted 1 to 9" in checked.stdout) == (1, True)
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
    crew.open_gate("gate")
    crew.wait_status("task-1", "MERGED")
    assert crew.status("task-3") == "UNCLAIMED", "a task with a wrong value is not claimed"
    type_in(crew, "task-2", "status: MERGED", "status: UNCLAIMED")
    task = crew.wait_status("task-2", "MERGED")
    assert task.merge_commit is not None

    type_in(crew, "task-3", "status: UNCLAIMED", "status: DONE")
    refused = crew.liza("status", code=4)
    assert re.search(r"state\.yaml:\d+:13: tasks\[2\]\.status is 'DONE', wanted one of DRAFT, UNCLAIMED", refused)
    type_in(crew, "task-3", "status: DONE", "status: UNCLAIMED")
    type_in(crew, "task-3", "    priority: -4\n", "")
    crew.wait_status("task-3", "MERGED")
    crew.liza("validate")


def test_an_edit_that_is_no_yaml_pauses_the_crew(crew: Crew) -> None:
    """The session that runs goes on; what it could not write is tried again after the repair."""
    begin(crew)
    good = crew.paths.state.read_text()
    broken = good.replace("tasks:\n", "tasks: [\n", 1) + "# a note of mine\n"
    line = broken[: broken.index("tasks: [")].count("\n") + 2
    crew.paths.state.write_text(broken)
    for words, code in (("status", 4), ("validate", 4), ("doctor", 5)):
        process = crew.run(words)
        shown = process.stdout + process.stderr
        assert process.returncode == code, shown
        assert f".liza/state.yaml:{line}:" in shown
        assert "liza restore --last-good" in shown
    crew.open_gate("gate")
    session_process.wait_for_end(crew.paths.run("coder-1.1"), LIMIT)
    assert crew.paths.state.read_text() == broken, "nobody writes over it"
    assert "the crew continues\nnext: liza status\n" in crew.liza("restore", "--last-good")
    (kept,) = crew.paths.tx.glob("broken-*.yaml")
    assert kept.read_text() == broken
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
    for task in ("task-1", "task-2", "task-3"):
        crew.wait_status(task, "MERGED")
    assert crew.git("show", "integration:task-1.txt").startswith("half of it")
    crew.liza("validate")
