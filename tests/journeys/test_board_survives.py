"""What people write on the board stays there, whatever a crew does to it."""

from __future__ import annotations

import re

import pytest

from tests.journeys.crews import APPROVE, WORK, Crew, history

FEW = 15
TASKS = [f"task-{number}" for number in range(1, 8)]
LOOKS_ALIKE = """\
      tasks:
        - id: "task-1"
          status: MERGED   # no comment
      # no comment either
      agents: {coder-1: {role: coder}}

      config:
        lease_duration: 1
"""


def decorated(text: str) -> str:
    """The board as a person with much to say leaves it: comments, odd keys, look-alikes, CRLF."""
    text = re.sub(r"(?m)^tasks:.*$", r"tasks:   # ① behind a section", text)
    text = re.sub(r'(?m)^  - id: "task-3"$', '  # ② above an entry\n\n  - id: "task-3"   # ③ behind an id', text)
    text = re.sub(r"(?m)^(    done_when: task-2.*)$", r"    # ④ above a key\n\1   # ⑤ behind a value", text)
    text = re.sub(
        r"(?m)^(    scope: .*task-4.*)$", "\\1\n    mine: |\n" + LOOKS_ALIKE.rstrip().replace("\\", r"\\"), text
    )
    text = re.sub(r"(?m)^agents:.*$", "# ⑥ between sections\n\nagents: {}   # ⑦ behind an empty one", text)
    text = re.sub(r"(?m)^(  max_coder_iterations:.*)$", r"\1   # ⑧ in the settings", text)
    text = re.sub(
        r"(?m)^(sprint:)$", r"my_section:\n  note: >-\n    # ⑨ in a folded text\n    tasks: []\n\1   # ⑩ sprint", text
    )
    return ("# ⓪ at the very top\n" + text + "# ⑪ at the very end, without a newline").replace("\n", "\r\n")


@pytest.mark.campaign
def test_comments_and_line_ends_survive_fifty_transitions(crew: Crew) -> None:
    crew.add(*TASKS)
    typed = crew.notes / "decorated"
    typed.write_bytes(decorated(crew.paths.state.read_text()).encode())
    crew.liza("edit", EDITOR=f"cp '{typed}'")
    before = crew.paths.state.read_bytes().decode()
    assert all(mark in before for mark in "⓪①②③④⑤⑥⑦⑧⑨⑩⑪")
    revision = crew.state().revision

    program = crew.script("agent", f'case "$LIZA_RUN" in coder-*) {WORK};; *) {APPROVE};; esac\n', ready=False)
    supervisors = [crew.agent(agent, program) for agent in ("coder-1", "code-reviewer-1")]
    crew.wait(lambda state: all(task.status == "MERGED" for task in state.tasks), "all merged")
    for supervisor in supervisors:
        assert supervisor.stop() == 0

    after = crew.paths.state.read_bytes().decode()
    assert crew.state().revision - revision >= 50
    assert after.replace("\r\n", "").count("\n") == after.replace("\r\n", "").count("\r") == 0
    for line in before.split("\r\n"):
        comment = re.search(r"# [⓪①②③④⑤⑥⑦⑧⑨⑩⑪].*", line)
        if comment:
            assert comment[0] in after, line
    assert LOOKS_ALIKE.rstrip().replace("\n", "\r\n") in after
    assert "note: >-\r\n    # ⑨ in a folded text\r\n    tasks: []\r\n" in after
    assert after.endswith("# ⑪ at the very end, without a newline")
    order = [after.index(mark) for mark in "⓪①②③"]
    assert order == sorted(order)
    crew.liza("validate")
    found = history(crew)[revision:]
    assert [number for number, *_ in found] == list(range(revision + 1, crew.state().revision + 1))
    assert [(subject, added, gone) for _, subject, added, gone in found if added > FEW or gone > FEW] == []


def test_a_cut_board_is_restored_by_the_command_it_names(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    for last_word in ('  - id: "task-2"', "max_coder_iterations"):
        before, whole = crew.state(), crew.paths.state.read_text()
        crew.paths.state.write_text(whole[: whole.index(last_word)])
        told = crew.liza("status", code=4)
        assert "is missing" in told
        assert "next: liza restore --last-good" in told
        assert crew.json("restore", "--last-good")["result"] == "changed"
        assert (crew.state().tasks, crew.state().config) == (before.tasks, before.config)
        assert crew.json("restore", "--last-good")["result"] == "unchanged"
