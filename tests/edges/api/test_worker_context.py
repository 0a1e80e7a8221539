"""The context of a run has the text of its brief, in sections; mode and reports decide which."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.api.prompts import ContextRequest, compose_context
from liza.briefs import inbox
from liza.briefs.brief_context import gather_brief_facts
from liza.briefs.brief_writer import compose_brief
from liza.briefs.rules.context_rules import ContextMode
from liza.crew.crew import Crew, find_crew
from liza.model.derived import find_current_work
from liza.model.errors import NotOwner, RunIsOver
from liza.model.model import HumanNote
from liza.programs.session.run_directory import Gauge, RunDir, RunRecord, Turn, TurnSource
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.tasks.claim import claim
from liza.tasks.handoff import HandoffRequest, handoff
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from tests.conftest import make_repository

FULL = ["role", "work", "mail", "directive"]


@pytest.fixture
def crew(tmp_path: Path) -> Crew:
    root = tmp_path / "repo"
    make_repository(root, {"README.md": "# A project\n"})
    init(root, InitOptions(goal="Customers can pay", no_test=True))
    crew = find_crew(root)
    add(crew, [TaskFields("t1", "Pay by <!-- liza:end --> invoice", "it works", "all", "README.md")])
    claim(crew, "coder-1", "t1")
    return crew


@pytest.fixture
def run(crew: Crew) -> RunDir:
    directory = crew.run_dir("coder-1.1")
    record = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now(), task="t1")
    directory.create(record)
    return directory


def sections(crew: Crew, mode: ContextMode = ContextMode.FULL) -> dict[str, str]:
    answer = compose_context(crew, ContextRequest(run_id="coder-1.1", mode=mode))
    assert (answer.run_id, answer.mode) == ("coder-1.1", mode)
    return {section.type.value: section.content for section in answer.sections}


def test_the_sections_of_a_full_context_form_the_brief(crew: Crew, run: RunDir) -> None:
    inbox.queue_message(crew.paths, "coder-1", "use the fonts in assets/", "human:ann", crew.clock.now())
    state = crew.board.read()
    work = find_current_work(state, "coder-1")
    assert work is not None
    block = compose_brief(gather_brief_facts(crew, state, work, run)).block
    text = sections(crew)
    assert list(text) == FULL
    assert "\n".join(text.values()) == "\n".join(block.splitlines()[2:-1])
    assert "use the fonts" in text["mail"]
    assert "Pay by <!- - liza:end --> invoice" in text["work"]


def test_a_mode_leaves_out_what_the_conversation_has(crew: Crew, run: RunDir) -> None:
    with crew.change("human:ann", "note") as tx:
        note = HumanNote(timestamp=crew.clock.now(), message="keep it short", recipient="coder-1")
        task = replace(tx.state.tasks[0], rejection_reason="no test")
        tx.state = replace(tx.state.with_task(task), human_notes=(note,))
    assert list(sections(crew)) == ["role", "work", "checkpoint", "mail", "directive"]
    assert "mail" not in sections(crew, ContextMode.COMPACT)
    assert "work" in sections(crew, ContextMode.COMPACT)
    resumed = sections(crew, ContextMode.RESUME)
    assert "work" not in resumed
    assert "keep it short" in resumed["mail"]


def test_a_reporting_runtime_gets_its_messages_once_as_prompts(crew: Crew, run: RunDir) -> None:
    inbox.queue_message(crew.paths, "coder-1", "use the fonts in assets/", "human:ann", crew.clock.now())
    run.write_turn(Turn(time=crew.clock.now(), phase="ready", source=TurnSource.API))
    assert "mail" not in sections(crew)


def test_an_ended_run_or_one_without_claim_has_no_context(crew: Crew, run: RunDir) -> None:
    other = crew.run_dir("coder-2.1")
    other.create(RunRecord(agent="coder-2", run="coder-2.1", kind="work", started=crew.clock.now(), task="t1"))
    with pytest.raises(NotOwner, match="has no claim any more"):
        compose_context(crew, ContextRequest(run_id="coder-2.1"))
    run.mark_concluded("finished: done")
    with pytest.raises(RunIsOver):
        sections(crew)


def test_a_handoff_records_how_full_the_context_window_was(
    crew: Crew, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.write_gauge(Gauge(context_usage=0.834))
    monkeypatch.setenv("LIZA_RUN", "coder-1.1")
    monkeypatch.setenv("LIZA_TASK", "t1")
    monkeypatch.setenv("LIZA_ROOT", str(crew.paths.root))
    monkeypatch.chdir(crew.paths.task_link("t1").resolve())
    handoff(crew, HandoffRequest(summary="half is done", next_action="the other half"))
    assert crew.board.read().handoff["t1"].context_used == 83
