"""Sessions in boxes: what a program in one can do, and how it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.boxed_slots import BoxedSlots
from tests.conftest import until
from tests.journeys.crews import APPROVE, WORK, Crew, processes_of

pytestmark = pytest.mark.needs("bwrap")


def test_a_confined_task_goes_from_claim_to_merge(confined: Crew) -> None:
    confined.add("one")
    confined.agent("coder-1", confined.script("coder.sh", f"env > $NOTES/env\n{WORK}"))
    confined.agent("code-reviewer-1", confined.script("reviewer.sh", APPROVE))
    confined.wait_status("one", "MERGED")
    assert "LIZA_CONFINED=yes" in (confined.notes / "env").read_text().splitlines()
    assert confined.git("show", "integration:one.txt").startswith("one by coder-1.")


ROW = """\
[programs.agent]
command = "{command}"
[programs.agent.interactive]
prompt = "none"
[programs.agent.headless]
prompt = "none"
[programs.agent.permissions]
none = true
[[programs.agent.state]]
path = "~/.agent"
variable = "AGENT_HOME"
copies = ["settings.json"]
[[programs.agent.state]]
path = "~/.agent-data"
copies = ["settings.json"]
"""
PLANTS = """\
cat "$AGENT_HOME/settings.json" "$HOME/.agent-data/settings.json" > $NOTES/read
for file in "$AGENT_HOME/settings.json" "$HOME/.agent-data/settings.json"; do echo hook > "$file"; done
for file in "$HOME/.agent/settings.json" "$HOME/.agent/new" "$HOME/.agent-new"; do
  (echo hook > "$file") 2>> $NOTES/refused || true
done
"""


@pytest.mark.campaign
def test_a_hook_a_session_writes_never_runs_for_a_person(confined: Crew) -> None:
    home = Path(os.environ["HOME"])
    for name in (".agent", ".agent-data"):
        (home / name).mkdir()
        (home / name / "settings.json").write_text(f"{name}\n")
    command = confined.script("agent.sh", f"{PLANTS}{WORK}").removeprefix("script:")
    (confined.paths.liza / "programs.toml").write_text(ROW.format(command=command))
    confined.add("one")
    confined.agent("coder-1", "agent")
    confined.wait_status("one", "READY_FOR_REVIEW")
    assert (confined.notes / "read").read_text() == ".agent\n.agent-data\n"
    assert (confined.notes / "refused").read_text().count("Read-only file system") == 3
    assert [(home / name / "settings.json").read_text() for name in (".agent", ".agent-data")] == [
        ".agent\n",
        ".agent-data\n",
    ]
    assert sorted(path.name for path in home.glob(".agent*/*")) == ["settings.json"] * 2


WATCHES = """\
git status --porcelain > $NOTES/before
echo > $NOTES/begun
while ! grep -q "use the long form" AGENTS.md; do sleep 0.1; done
until [ -z "$(git --no-optional-locks status --porcelain)" ]; do sleep 0.1; done
echo clean > $NOTES/clean
sleep 100
"""


@pytest.mark.campaign
def test_git_in_a_box_never_sees_a_brief(confined: Crew) -> None:
    (confined.root / "AGENTS.md").write_text("# Rules\n")
    confined.git("add", "-A")
    confined.git("commit", "-q", "-m", "rules")
    confined.prepare("sync")
    confined.add("one")
    confined.agent("coder-1", confined.script("coder.sh", WATCHES))
    confined.wait_note("begun")
    assert (confined.notes / "before").read_text() == ""
    confined.liza("note", "--to", "coder-1", "--now", "use the long form")
    confined.wait_note("clean")


SAVES = """
trap 'echo saved > $NOTES/saved; exit 7' TERM
echo "$$" > $NOTES/begun
while :; do sleep 0.1; done
"""


def test_a_confined_program_saves_its_work_when_its_supervisor_stops(confined: Crew) -> None:
    confined.add("one")
    supervisor = confined.agent("coder-1", confined.script("coder.sh", SAVES))
    confined.wait_note("begun")
    assert supervisor.stop() == 0
    assert confined.wait_note("saved") == "saved\n"
    assert processes_of(confined.root) == []


def test_a_confined_program_ignoring_term_is_killed_with_its_children(confined: Crew) -> None:
    text = "trap '' TERM\n(setsid env -i sleep 300 &)\necho > $NOTES/begun\nwhile :; do sleep 0.1; done\n"
    confined.add("one")
    supervisor = confined.agent("coder-1", confined.script("coder.sh", text))
    confined.wait_note("begun")
    assert supervisor.stop() == 0
    assert processes_of(confined.root) == []


@pytest.mark.campaign
def test_a_killed_shim_ends_the_box(confined: Crew) -> None:
    confined.add("one")
    supervisor = confined.agent("coder-1", confined.script("coder.sh", SAVES))
    confined.wait_note("begun")
    supervisor.kill()
    os.kill(confined.session("coder-1.1")["shim"]["pid"], signal.SIGKILL)
    until(lambda: processes_of(confined.root) == [], "the box has ended")


@pytest.mark.campaign
def test_a_confined_program_that_a_signal_ends_is_reported_so(confined: Crew) -> None:
    confined.add("one")
    supervisor = confined.agent("coder-1", confined.script("coder.sh", "kill -KILL $$\n"))
    supervisor.wait_said("ended by SIGKILL")


def test_a_program_that_the_box_cannot_start_costs_no_try(confined: Crew) -> None:
    confined.add("one")
    program = confined.script("coder.sh", "true\n")
    path = confined.notes.parent / "coder.sh"
    path.write_text(path.read_text().replace("#!/bin/sh", "#!/run/nowhere/sh"))
    supervisor = confined.agent("coder-1", program)
    supervisor.wait_gone()
    assert "No such file or directory" in supervisor.said()
    assert "try 2" not in supervisor.said()


def test_a_confined_session_submits_after_its_supervisor_was_killed(confined: Crew) -> None:
    confined.gate("gate")
    confined.add("one")
    text = f'echo at > "$NOTES/at"\nread line < "$NOTES/gate"\n{WORK}echo "submitted $?" > "$NOTES/said"\n'
    program = confined.script("coder.sh", text)
    supervisor = confined.agent("coder-1", program)
    confined.wait_note("at")
    supervisor.kill()
    confined.open_gate("gate")
    assert confined.wait_note("said") == "submitted 0\n"
    confined.wait_status("one", "READY_FOR_REVIEW")
    assert "one by coder-1.1" in confined.git("show", "task/one:one.txt")
    confined.agent("coder-1", program)
    confined.wait(lambda state: state.agents["coder-1"].current_task is None, "the session is concluded")
    assert confined.heard("one") == ["add", "claim", "submit"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("point", "is_on_branch", "status"),
    [
        ("import.checked", False, "CLAIMED"),
        ("import.prepared", False, "CLAIMED"),
        ("import.ref", True, "CLAIMED"),
        ("git.diff", True, "CLAIMED"),
        ("renamed.seal", True, "CLAIMED"),
        ("renamed.state.yaml", True, "READY_FOR_REVIEW"),
    ],
)
def test_a_submit_killed_at_any_step_is_completed_by_another(
    confined: Crew, point: str, is_on_branch: bool, status: str
) -> None:
    confined.add("one")
    confined.prepare("claim", "one", "--agent", "coder-1")
    slots = BoxedSlots(confined.root, confined.paths.slots, "one")
    slots.begin()
    commit = slots.commit("one.txt")
    assert confined.run("submit", cwd=slots.slot, LIZA_FAULT=point).returncode in (-signal.SIGKILL, 137)
    assert (slots.tip() == commit, confined.status("one")) == (is_on_branch, status)
    confined.liza("submit", cwd=slots.slot)
    assert (confined.heard("one"), confined.task("one").review_commit) == (["add", "claim", "submit"], commit)
    assert slots.tip() == confined.git("rev-parse", "refs/liza/review/one") == commit
    assert confined.git("fsck", "--no-dangling") == ""
    assert list((confined.root / ".git" / "objects").glob("incoming-*")) == []


@pytest.mark.campaign
def test_a_confined_session_can_edit_the_board_within_its_guards(confined: Crew) -> None:
    confined.add("one")
    entry = "{agent: coder-1, run: coder-1.1, summary: begun, next_action: the rest}"
    text = f"""
    liza lock -- sed -i 's/^handoff: .*/handoff: {{one: {entry}}}/' "$LIZA_ROOT/.liza/state.yaml"
    liza lock -- sed -i 's/status: CLAIMED/status: APPROVED/' "$LIZA_ROOT/.liza/state.yaml" 2> refused || true
    liza up 2>> refused || true
    liza report trade_off "cached" --detail what=cache --detail why=speed --detail debt_created=yes
    cp refused "$NOTES/refused"; rm refused
    call='{{"session_id": "4f2c", "tool_name": "Bash", "tool_input": {{"command": "git push"}}}}'
    echo "$call" | liza hook claude PreToolUse 2> "$NOTES/hook" || echo "code $?" >> "$NOTES/hook"
    {WORK}"""
    confined.agent("coder-1", confined.script("coder.sh", text))
    confined.wait_status("one", "READY_FOR_REVIEW")
    assert confined.state().handoff["one"].summary == "begun"
    assert confined.state().anomalies[0].reporter == "coder-1.1"
    refused = (confined.notes / "refused").read_text()
    assert "tasks.one.status: a session may change only" in refused
    answer = (confined.notes / "hook").read_text()
    assert "Agents do not push" in answer
    assert answer.endswith("code 2\n")
    assert "liza up is for a person, who types it outside of every session" in refused


@pytest.mark.campaign
@pytest.mark.needs("tmux")
def test_a_confined_session_at_a_terminal_submits_through_its_socket(confined: Crew) -> None:
    confined.add("one")
    confined.agent("coder-1", confined.script("coder.sh", f"test -t 1\nliza status\nliza diff one\n{WORK}"), "--tmux")
    confined.wait_status("one", "READY_FOR_REVIEW")
