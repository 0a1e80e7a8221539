"""`liza start`: from one sentence to a merged commit, in a repository without a crew."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.crew.crew import find_crew
from liza.model.history_events import HistoryEvent
from liza.tasks.task import add_sentence_task
from tests.journeys.crews import APPROVE, WORK, begun

AGENT = f"""\
case "$LIZA_RUN" in
coder-*)
cp .env "$NOTES/copied" || true
{WORK};;
*)
liza ready > "$NOTES/review"
{APPROVE};;
esac
"""


def test_one_sentence_becomes_a_merged_commit(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    program = crew.script("agent", AGENT, ready=False)
    try:
        assert "the sentence is empty" in crew.liza("start", " ", "--program", program, code=2)
        assert not crew.paths.liza.exists()
        refused = crew.liza("start", "Show the due date", "--program", "clade", code=2)
        assert "unknown program 'clade'" in refused
        assert "baseline" not in refused
        assert not crew.paths.liza.exists()
        (crew.root / ".git/info/exclude").write_text(".env*\n")
        (crew.root / ".env").write_text("KEY=1\n")
        shown = crew.liza("start", "Show the due date", "--copy", ".env", "--program", program)
        assert crew.status("show-the-due-date") == "MERGED"
        assert crew.state().config.sandbox_copy == (".env",)
        assert (crew.notes / "copied").read_text() == "KEY=1\n"
        copies = ("--copy", ".env", "--copy", ".env.test")
        refused = crew.liza("start", "Show the tax", *copies, "--program", program, code=1)
        assert "has a crew already, which does not copy .env.test" in refused
        assert """liza config set sandbox_copy '[".env", ".env.test"]'""" in refused
        assert crew.state().task("show-the-tax") is None
        news = [line.split()[1:4] for line in shown.splitlines() if "show-the-due-date" in line.split()[2:3]]
        assert [words[-1] for words in news] == ["working", "in", "approved:", "merged"]
        assert "ready after" not in shown
        assert "comes from one sentence of a person" in (crew.notes / "review").read_text()
        assert (crew.paths.specs / "show-the-due-date.md").is_file()
        assert "Accept the result: liza land --merge" in " ".join(shown.split())
        assert crew.living() == []
    finally:
        crew.clean()


@pytest.mark.campaign
def test_a_task_its_coder_failed_earlier_goes_to_another_one(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    program = crew.script("agent", AGENT, ready=False)
    try:
        crew.liza("start", "Show the due date", "--program", program)
        ours = find_crew(crew.root)
        assert "unknown program 'clade'" in crew.liza("start", "Show the tax", "--program", "clade", code=2)
        assert crew.state().task("show-the-tax") is None
        added = add_sentence_task(ours, "Show the total")
        with ours.change("human", HistoryEvent.EDIT, added.task) as tx:
            task = tx.state.task("show-the-total")
            assert task is not None
            tx.state = tx.state.with_task(replace(task, failed_by=("coder-1",)))
        assert crew.json("status")["up"] == f"liza up --planners 0 --coders 2 --program {program}"
        crew.prepare("config", "set", "integration_command", "test -f README.md")
        crew.liza("task", "add", "--id", "idea")  # A draft that waits for its person keeps no `liza start` from ending.
        shown = crew.liza("start", "Show the total", "--program", program, "-v")
        assert "show-the-total is closed; other tasks wait for you (liza status)" in " ".join(shown.split())
        assert crew.status("show-the-total") == "MERGED"
        assert "the crew waits for you: show-the-total" not in shown
        begun_merge = shown.index("liza            merge of show-the-total runs: test -f README.md")
        assert begun_merge < shown.index("show-the-total merged as")
        assert crew.living() == []
    finally:
        crew.clean()
