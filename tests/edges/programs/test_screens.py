"""Commands for people fit on a screen of 24 rows and 80 columns, and have no words of the machine."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from liza.cli import entry_points
from liza.commands.history import EVENTS
from liza.config.rules.setting_values import setting_names
from liza.crew.crew import Crew
from liza.model.model import Status
from liza.model.narration import NewsItem
from liza.model.value_classes import replace
from liza.printing import printing, render_metrics
from liza.printing.columns import cell_width, format_day, wrap_text
from liza.printing.render_patch import EventList
from liza.view import history
from liza.view.metrics import metrics
from tests.pictures.example_crew import open_example

ROWS, COLUMNS = 24, 80
MACHINE_WORDS = re.compile("|".join([*(rf"\b{status}\b" for status in Status), r"\b[0-9a-f]{40}\b", "  -(?:  |$)"]))


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with open_example(tmp_path / "shop") as crew:
        yield crew


def assert_fits(text: str) -> None:
    """At a terminal, the text is at most a screen without its prompt, in words for people."""
    rows = wrap_text(text, COLUMNS).splitlines()
    assert len(rows) < ROWS, text
    assert max(map(cell_width, rows)) <= COLUMNS
    assert not MACHINE_WORDS.search(text), text


def print_command(crew: Crew, *words: str) -> str:
    """Return what a command prints at a terminal without colours."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(crew.paths.root),
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        patch.setattr(printing, "text_width", lambda: COLUMNS)
        assert entry_points.run_command(list(words)) == 0
    return out.getvalue()


def test_history_prints_events_newest_first_below_their_day(crew: Crew) -> None:
    past = history.recall_events(crew, None, EVENTS)
    text = EventList(crew.clock.now(), COLUMNS, colour=False).format(reversed(past.items))
    assert_fits(text)
    assert text.splitlines()[0] == "today"
    assert "invoice-numbers approved" in text
    assert not re.search("candidate|reserve|leave|review begins", text)
    assert [item.time for item in past.items] == sorted(item.time for item in past.items if item.time)
    of_task = history.recall_events(crew, "invoice-model", 100).items
    assert [item.text.split()[1] for item in of_task if item.text.startswith("invoice-model")] == [
        "working", "in", "to", "working", "in", "approved:", "merged"
    ]  # fmt: skip
    blocked = next(item for item in history.recall_events(crew, "invoice-mail", 100).items if "asks:" in item.text)
    assert blocked.text.endswith('configured. "Which sender address?"')


def test_an_event_is_dated_by_its_day(crew: Crew) -> None:
    now = crew.clock.now().astimezone().replace(hour=12)
    days = [format_day(now - timedelta(days=number), now) for number in (0, 1, 2, 400)]
    assert days == ["today", "yesterday", "Wed 18 Nov", "Thu 16 Oct 2025"]
    events = EventList(now, COLUMNS, colour=False)
    item = NewsItem("human:ann", "t1 " + "long " * 30, time=now - timedelta(days=1))
    first = events.format([item, replace(item, time=now)]).splitlines()
    assert (first[0], first[2]) == ("yesterday", "today")
    assert first[1].split()[1] == "ann"
    assert first[1].endswith("…")
    assert events.format([item]).splitlines()[0] == "yesterday"
    assert events.format([item]).startswith("  12:00:30  ann ")
    assert EventList(now, COLUMNS, colour=False, reader="human:ann").format([item]).splitlines()[1].split()[1] == "you"


def test_metrics_are_sentences_and_two_short_tables(crew: Crew) -> None:
    text = render_metrics.format_summary(metrics(crew))
    assert_fits(text)
    assert text.splitlines()[0] == "1 of 11 tasks merged"


def test_explain_lists_the_alarms_that_are_raised_now(crew: Crew) -> None:
    shown = print_command(crew, "explain")
    assert_fits(shown)
    assert shown.splitlines()[0].startswith("expired_lease ")
    assert shown.splitlines()[-1] == "next: liza explain NAME"
    assert "supervisor_left" not in shown
    assert "supervisor_left," in print_command(crew, "explain", "--all")


def test_explain_reports_that_there_is_no_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.chdir(tmp_path):
        assert entry_points.run_command(["explain"]) == 0
    assert capsys.readouterr().out == "no alarm; liza explain --all lists all alarms, errors and findings\n"


def test_config_get_shows_what_was_changed_and_the_usual_settings(crew: Crew) -> None:
    shown = print_command(crew, "config", "get")
    assert_fits(shown)
    rows = shown.splitlines()
    assert rows[0] == "changed:"
    assert "budget.money_per_sprint  25.0 US$            most money in all; null: no limit" in rows
    assert "max_coder_iterations     10                  tries before a task is blocked" in rows
    assert "proof." not in shown
    every = print_command(crew, "config", "get", "--all")
    assert "hung_after  1800 s  (default: 600 s)\n  time without activity after which a session is ended\n" in every
    assert "budget.money_per_sprint  25.0 US$  (default: null)\n" in every
    assert all(f"{name}  " in every for name in setting_names())


def test_task_show_has_short_commits_and_no_evidence(crew: Crew) -> None:
    shown = print_command(crew, "task", "show", "invoice-model")
    assert "merged as        907a169ced\n" in shown
    every = print_command(crew, "task", "show", "invoice-model", "--all")
    assert "merged as        907a169ced6fdf9a37a84e539c2dac90716ebb78\n" in every
    for text, is_there in ((shown, False), (every, True)):
        assert bool(re.search(r"^run +coder-1\.2$", text, re.MULTILINE)) is is_there


def test_all_revisions_of_the_board_are_there_if_wanted(crew: Crew) -> None:
    for words, is_there in (([], False), (["--all"], True), (["-p"], True), (["--json"], True)):
        assert ("init (human)" in print_command(crew, "history", *words)) is is_there
