"""The next session of a task continues the conversation of the last one, with the new brief as its prompt."""

from __future__ import annotations

import pytest

from tests.journeys.crews import WORK, Crew

ROW = """\
[programs.modelled]
command = "{command}"
instructions = ["AGENTS.md"]
{top}
[programs.modelled.headless]
prompt = "none"
[programs.modelled.permissions]
none = true
{told}
[programs.modelled.resume]
style = "flag"
id = ["--go-on-with", "{{id}}"]
"""
TOLD = '[programs.modelled.usage]\nsession = ["session"]'
PROGRAM = """\
echo "${1-no} ${2-words}" >> "$NOTES/words"
case "$LIZA_RUN" in *.3) echo "no conversation found with this id"; exit 1;; esac
liza ready > "$NOTES/brief-of-$LIZA_RUN"
echo '{"type":"begun","session":"s-'"${LIZA_RUN#*.}"'"}'
"""


@pytest.mark.campaign
def test_a_conversation_continues_after_rejection_or_is_replaced(crew: Crew) -> None:
    crew.configure(restart_after_crash=1)
    crew.add("task-1")
    command = crew.script("modelled", PROGRAM + WORK, ready=False).removeprefix("script:")
    (crew.paths.liza / "programs.toml").write_text(ROW.format(command=command, top="", told=TOLD))
    supervisor = crew.agent("coder-1", "modelled")
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert crew.json("task", "show", "task-1")["conversation"] is None

    crew.liza("verdict", "reject", "commas are missing", "--task", "task-1")
    crew.wait(lambda _: crew.heard("task-1").count("submit") == 2, "the work after the rejection")
    assert "coder-1.2 continues coder-1.1" in crew.liza("task", "show", "task-1", "--all")
    assert "commas are missing" in (crew.notes / "brief-of-coder-1.2").read_text()

    crew.liza("verdict", "reject", "and full stops", "--task", "task-1")
    crew.wait(lambda _: crew.heard("task-1").count("submit") == 3, "the work after the refused conversation")
    words = (crew.notes / "words").read_text().splitlines()
    assert words == ["no words", "--go-on-with s-1", "--go-on-with s-2", "no words"]
    task = crew.task("task-1")
    assert (task.iteration, task.failed_by) == (3, ()), "a refused conversation is no try and no crash"
    assert crew.heard("task-1")[-3:] == ["held up", "resume", "submit"]
    shown = crew.json("task", "show", "task-1")["conversation"]
    reason = "coder-1.3 could not resume its conversation"
    assert shown == {"run": "coder-1.4", "continues": None, "why": reason}
    assert supervisor.stop() == 0
    assert supervisor.said().count(reason) == 1


def test_a_conversation_that_only_the_programs_variable_names_goes_on(crew: Crew) -> None:
    crew.add("task-1")
    told = 'echo "${1-no} ${2-words}" >> "$NOTES/words"\nMODEL_SESSION="s-${LIZA_RUN#*.}" liza ready > /dev/null\n'
    command = crew.script("modelled", told + WORK, ready=False).removeprefix("script:")
    top = 'session_id_env = "MODEL_SESSION"'
    (crew.paths.liza / "programs.toml").write_text(ROW.format(command=command, top=top, told=""))
    supervisor = crew.agent("coder-1", "modelled")
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    crew.liza("verdict", "reject", "commas are missing", "--task", "task-1")
    crew.wait(lambda _: crew.heard("task-1").count("submit") == 2, "the work after the rejection")
    assert (crew.notes / "words").read_text().splitlines() == ["no words", "--go-on-with s-1"]
    assert supervisor.stop() == 0
