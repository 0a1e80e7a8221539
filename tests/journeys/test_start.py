"""`liza start`: from one sentence to a merged commit, in a repository without a crew."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.crews import APPROVE, WORK, begun


def test_one_sentence_becomes_a_merged_commit_and_the_reviewer_is_told_where_it_comes_from(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    agent = f"""\
case "$LIZA_RUN" in
coder-*)
{WORK};;
*)
liza ready > "$NOTES/review"
{APPROVE};;
esac
"""
    program = crew.script("agent", agent, ready=False)
    try:
        assert "the sentence is empty" in crew.liza("start", " ", "--program", program, code=2)
        assert not crew.paths.liza.exists()
        shown = crew.liza("start", "Show the due date", "--program", program)
        assert crew.status("show-the-due-date") == "MERGED"
        assert "show-the-due-date merged" in shown
        assert "comes from one sentence of a person" in (crew.notes / "review").read_text()
        assert (crew.paths.specs / "show-the-due-date.md").is_file()
        assert crew.living() == []
    finally:
        crew.clean()
