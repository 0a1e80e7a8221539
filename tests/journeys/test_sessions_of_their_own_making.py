"""Agents that write into the directories of runs: their own, those of runs that nobody took, other agents'."""

from __future__ import annotations

import json
import shutil

import pytest

from liza.crew import crew as verbs
from liza.supervisor.observe import trusted_record
from liza.system.clock import SystemClock
from tests.conftest import variant
from tests.journeys.crews import Crew

HIDES = {
    "a run that nobody took": 'mkdir "$run.1" "$run.99" "$run.999999999" "$run.9999999999" "$run.²"',
    "an end that was not": 'echo finished > "$run.1/settled"',
    "no directory at all": 'rm -r "$run.1"',
}


@pytest.mark.parametrize("hides", ["an end that was not", *map(variant, [*HIDES][::2])])
def test_a_session_hiding_from_its_supervisor_gets_no_second_one(crew: Crew, hides: str) -> None:
    crew.add("task-1")
    crew.gate("go")
    program = crew.script(
        "hides",
        f"""
        run="$LIZA_ROOT/.liza/run/$LIZA_AGENT_ID/$LIZA_AGENT_ID"
        mkdir $NOTES/once 2> /dev/null && {{ {HIDES[hides]}; }}
        pgrep -fc '^/bin/sh {crew.notes.parent}/[h]ides$' > $NOTES/living.$$
        echo begun > $NOTES/begun
        cat $NOTES/go
        liza block 'no more' --ask 'what then?'
        """,
    )
    supervisor = crew.agent("coder-1", program)
    crew.wait_note("begun")
    if hides == "no directory at all":
        # Its end can be told to nobody, so it is ended before another one begins.
        supervisor.wait_said("ending processes of coder-1 that no session records")
        crew.wait(lambda _: len(list(crew.notes.glob("living.*"))) == 2, "another session")
    crew.liza("note", "look again")
    crew.open_gate("go")
    crew.wait_status("task-1", "BLOCKED")
    assert {path.read_text().strip() for path in crew.notes.glob("living.*")} == {"1"}
    assert supervisor.stop() == 0
    assert crew.living() == []


def test_a_runs_purpose_comes_from_the_board_not_from_records(crew: Crew) -> None:
    crew.add("task-1")
    crew.add("task-2")
    for agent, task in (("coder-1", "task-1"), ("coder-2", "task-2")):
        crew.liza("claim", task, "--agent", agent)
        directory = crew.paths.run(f"{agent}.1")
        directory.mkdir(parents=True, exist_ok=True)
        record = {"agent": agent, "run": f"{agent}.1", "kind": "work", "started": "2026-01-01T12:00:00Z", "task": task}
        (directory / "run.json").write_text(json.dumps(record))
    mine, theirs = crew.paths.run("coder-1.1") / "run.json", crew.paths.run("coder-2.1") / "run.json"
    forged = json.dumps({**json.loads(mine.read_text()), "task": "task-2", "kind": "review", "worktree": "/s2"})
    opened = verbs.Crew(crew.paths, SystemClock())
    state = opened.board.read()
    for data in (theirs.read_text(), forged, "{", "[" * 5000):
        mine.write_text(data)
        found = trusted_record(opened, state, opened.run_dir("coder-1.1"))
        assert found is not None
        assert (found.agent, found.run, found.kind, found.task) == ("coder-1", "coder-1.1", "work", "task-1")
        assert found.worktree == str(crew.paths.slot(crew.task("task-1").worktree or ""))
    shutil.rmtree(mine.parent)
    assert trusted_record(opened, state, opened.run_dir("coder-1.1")) is not None
