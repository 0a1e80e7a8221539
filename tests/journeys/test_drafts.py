"""Tasks that were planned on a document that nobody had committed: said at once, and free as soon as it is there."""

from __future__ import annotations

import subprocess

import pytest

from tests.conftest import commit_all
from tests.journeys.crews import APPROVE, BIN, WORK, Crew

LACKS = "spec DESIGN.md is not committed on integration"
PLAN = """\
planner-*)
    if [ -e "$NOTES/planned" ]; then exec liza handoff "nothing to add" --done; fi
    touch "$NOTES/planned"
    liza task add --file - <<YAML
- {id: alpha, description: A, done_when: it is there, scope: alpha.txt, spec_ref: DESIGN.md}
- {id: beta, description: B, done_when: it is there, scope: beta.txt, spec_ref: DESIGN.md}
- {id: later, description: L, done_when: it is there, scope: later.txt, spec_ref: DESIGN.md, draft: true}
YAML
    liza handoff "three tasks planned" --done ;;
"""


def add(crew: Crew, task: str, *more: str) -> str:
    words = ("--desc", "d", "--done", "w", "--scope", "s", "--spec", "DESIGN.md")
    return crew.liza("task", "add", "--id", task, *words, *more)


def test_drafts_of_a_planner_have_one_command_that_frees_them(crew: Crew) -> None:
    (crew.root / "DESIGN.md").write_text("# How it is to be\n")
    program = crew.script("agent", f'case "$LIZA_RUN" in\n{PLAN}coder-*)\n{WORK};;\n*)\n{APPROVE};;\nesac\n')
    planner = crew.agent("planner-1", program)
    planner.wait_said("! 2 tasks are drafts")
    step = "git add DESIGN.md && git commit -m 'Add DESIGN.md' DESIGN.md && liza sync"
    told = f"2 tasks are drafts and wait for you (alpha, beta): {LACKS}"
    assert f"{told}. Next: {step}\n" in crew.paths.alerts.read_text()
    shown = crew.liza("status")
    assert shown.index(told) < shown.index("\nalpha ")
    assert f"    {step}\n" in shown
    assert [one["missing"] for one in crew.json("status")["tasks"]] == [[LACKS], [LACKS], [LACKS]]

    crew.agent("coder-1", program)
    crew.agent("code-reviewer-1", program)
    subprocess.run(["sh", "-c", f'PATH="{BIN}:$PATH"; {step}'], cwd=crew.root, check=True, capture_output=True)
    for task in ("alpha", "beta"):
        crew.wait_status(task, "MERGED")
        assert crew.heard(task)[:2] == ["add", "ready"]
    assert crew.status("later") == "DRAFT"
    assert LACKS not in crew.liza("status")
    assert LACKS not in crew.liza("task", "list")


def test_another_persons_commit_on_integration_frees_a_draft(crew: Crew) -> None:
    crew.configure(poll_interval=1)
    add(crew, "t1")
    planner = crew.agent("planner-1", crew.script("agent", "liza handoff 'nothing' --done\n"))
    planner.wait_said("! t1 is a draft")
    _commit_on_integration(crew)
    crew.wait_status("t1", "UNCLAIMED")
    planner.wait_said("liza  t1 is not a draft any more")


@pytest.mark.campaign
def test_the_next_up_frees_a_draft_and_status_stays_true(crew: Crew) -> None:
    told = add(crew, "t1")
    assert '\nnext: "${EDITOR:-vi}" DESIGN.md && git add DESIGN.md && git commit' in told
    add(crew, "t2", "--draft")
    _commit_on_integration(crew)
    shown = crew.liza("status")
    assert LACKS not in shown
    assert "t1 is a draft and lacks nothing any more\n    liza up\n" in shown
    told = crew.liza(
        "up", "-d", "--planners", "0", "--reviewers", "0", "--program", crew.script("agent", "liza exit 1\n")
    )
    assert "t1 is not a draft any more: DESIGN.md is committed on integration" in told
    assert crew.heard("t1")[:2] == ["add", "ready"]
    assert crew.status("t2") == "DRAFT"
    crew.liza("down", "--now")


COMPLETE = """\
echo "$LIZA_RUN" >> "$NOTES/runs"
liza ready >> "$NOTES/brief"
if [ "$(cat "$NOTES/what")" = complete ]; then
    liza task edit t1 --done "t1.txt is there" --scope t1.txt
    liza handoff "t1 is complete" --done
else
    liza handoff "a person has to say what t2 is" --done
fi
"""


def test_an_incomplete_task_of_a_person_is_completed_by_a_planner(crew: Crew) -> None:
    (crew.notes / "what").write_text("complete\n")
    crew.liza("task", "add", "--id", "t1", "--desc", "Write t1", "--spec", "README.md")
    planner = crew.agent("planner-1", crew.script("agent", COMPLETE, ready=False))
    crew.wait_status("t1", "UNCLAIMED")
    brief = (crew.notes / "brief").read_text()
    assert "OPEN_DRAFTS" in brief
    assert "t1 DRAFT: lacks " in brief
    assert "done" in brief.partition("t1 DRAFT: lacks ")[2].partition("\n")[0]

    (crew.notes / "what").write_text("leave\n")
    crew.liza("task", "add", "--id", "t2", "--desc", "Write t2", "--spec", "README.md")
    crew.wait(lambda state: "a person has to say" in str(state.goal.alignment_history), "the planner's decision")
    crew.wait(lambda state: state.planning.run is None, "the end of planning")
    planner.wait_said("! t2 is a draft and waits for you")
    crew.liza("note", "a word for everyone")
    assert "nothing to plan" in crew.liza("agents", "planner-1")
    assert planner.stop() == 0
    assert (crew.notes / "runs").read_text().split() == ["planner-1.1", "planner-1.2"], "t2 woke it once"
    assert crew.status("t2") == "DRAFT"


def _commit_on_integration(crew: Crew) -> None:
    """As somebody does who works on integration without Liza, in a checkout of their own."""
    there = crew.notes / "elsewhere"
    crew.git("clone", "-q", "-b", "integration", str(crew.root), str(there))
    commit_all(there, "design", {"DESIGN.md": "# How it is to be\n"})
    crew.git("push", "-q", "origin", "integration", cwd=there)
