"""The screens of a crew at work, as a person turns, filters and folds them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.crew.crew import Crew
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.ui.facts import gather
from liza.ui.rules.keys import KEYS, footer_keys, keys_of
from liza.ui.rules.picture_view import Filter
from liza.ui.rules.snapshot import ScreenName, Snapshot, Unread, Wanted
from liza.ui.seen import read_seen
from liza.view.status import look
from tests.edges.ui.person import Person, sit_down
from tests.pictures.example_crew import open_example


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Crew]:
    """A crew with a question, a rejection, a conflict, a usage limit, a trip and a merge."""
    time.tzset()
    with open_example(tmp_path / "shop", is_troubled=True) as crew:
        yield crew


def test_each_screen_answers_its_question(shop: Crew) -> None:
    expected = {
        "1": ("WAITS FOR YOU  5", "invoice-pdf", "MERGED  1   last: invoice-model"),
        "2": ("TO DO  2", "needs invoice-mail", "EPICS  1"),
        "3": ("until 10:40", "usage limit", "no supervisor runs"),
        "4": ("waits for files in your checkout", "conflict with integration", "merged as 907a169ced"),
        "5": ("$3.84", "code-reviewer-1", "2026-11-20"),
        "6": ("vat-rates asks", "payment-terms to fix", "09:59:30"),
        "?": ("show or fold the merged tasks", "SIGNS OF AGENTS", "waits until"),
    }

    async def steps(person: Person) -> None:
        for key, texts in expected.items():
            await person.press(key)
            for text in texts:
                await person.wait(lambda text=text: text in person.text)
            await person.press("escape")

    sit_down(shop, steps, size=(80, 70))


def test_the_chosen_line_is_chosen_again_after_another_screen(shop: Crew) -> None:
    async def steps(person: Person) -> None:
        await person.press("j", "j")
        chosen = person.app.body.chosen
        await person.press("enter")
        await person.wait(lambda: "done when" in person.text)
        await person.press("escape")
        assert "WAITS FOR YOU" in person.text
        assert person.app.body.chosen == chosen

    sit_down(shop, steps)


def test_the_numbers_are_those_of_status(shop: Crew) -> None:
    async def steps(person: Person) -> None:
        picture = look(shop)
        await person.wait(lambda: f" {len(picture.waits)} wait for you" in person.text)
        assert f"{picture.counts['merged']}/{picture.total} merged" in person.text

    sit_down(shop, steps)


def test_a_filter_hides_nothing_that_waits_and_counts_the_rest(shop: Crew) -> None:
    async def steps(person: Person) -> None:
        await person.press("f", *"to fix", "enter")
        await person.wait(lambda: "only to fix: 6 rows hidden" in person.text)
        assert "WAITS FOR YOU  5" in person.text
        assert "payment-terms" in person.text
        assert "reminder-letters" not in person.text
        await person.press("escape")
        assert "reminder-letters" in person.text
        await person.press("/", *"letters")
        await person.wait(lambda: 'with "letters"' in person.text)
        await person.press("escape")
        assert person.app.view.filter == Filter(text="letters")
        await person.press("f", "x", "enter")
        await person.wait(lambda: "neither a status nor an agent" in person.text)

    sit_down(shop, steps)


def test_merged_tasks_and_news_are_folded_until_asked_for(shop: Crew) -> None:
    async def steps(person: Person) -> None:
        assert "An invoice with lines" not in person.text
        await person.press("m")
        assert "An invoice with lines" in person.text
        await person.press("X")
        assert "Send the invoice by fax" in person.text
        report = look(shop).discoveries[0]
        assert report.text[:30] not in person.text
        row = next(row for row, line in enumerate(person.app.body.lines) if "GOOD TO KNOW" in line.text)
        person.app.body.choose_row(row)
        await person.press("enter")
        assert report.text[:30] in person.text

    sit_down(shop, steps, size=(160, 50))


def test_history_marks_what_is_new_since_the_last_visit(shop: Crew) -> None:
    async def first(person: Person) -> None:
        await person.press("6")
        await person.wait(lambda: "vat-rates asks" in person.text)
        assert "since you looked" not in person.text

    sit_down(shop, first)
    assert read_seen(shop) == shop.clock.now()

    class LaterClock:
        def now(self) -> object:
            return shop.clock.now().replace(minute=5)

        def monotonic(self) -> float:
            return 2000.0

    later = Crew(shop.paths, LaterClock())  # type: ignore[arg-type]
    add(later, [TaskFields(id="export", description="Export", done_when="it is", scope="src/", spec_ref="s.md")])

    async def second(person: Person) -> None:
        await person.press("6")
        await person.wait(lambda: "1 event since you looked" in person.text)
        assert person.text.index("1 task: export") < person.text.index("since you looked")

    sit_down(later, second)


def test_a_picture_that_only_looks_records_no_visit(shop: Crew) -> None:
    async def steps(person: Person) -> None:
        await person.press("6")

    sit_down(shop, steps, is_read_only=True)
    assert read_seen(shop) is None


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (45, 11), (39, 30), (160, 50), (20, 5)], ids=str)
def test_what_waits_is_shown_at_every_size(shop: Crew, size: tuple[int, int]) -> None:
    async def steps(person: Person) -> None:
        await person.wait(lambda: "5 wait" in person.text)

    sit_down(shop, steps, size=size)


def test_a_part_that_cannot_be_read_leaves_the_others(shop: Crew) -> None:
    shop.paths.usage.write_text("no line of JSON\n")
    snapshot = gather(shop, Wanted(ScreenName.COSTS))
    assert isinstance(snapshot, Snapshot)
    assert isinstance(snapshot.costs, Unread)

    async def steps(person: Person) -> None:
        await person.wait(lambda: "cost ?" in person.text and "WAITS FOR YOU  5" in person.text)
        await person.press("5")
        await person.wait(lambda: "? the costs cannot be read" in person.text)

    sit_down(shop, steps)


def test_footer_help_and_bindings_are_one_table(shop: Crew) -> None:
    async def steps(person: Person) -> None:
        await person.press("?")
        for key in KEYS:
            assert callable(getattr(person.app, f"press_{key.command}"))
            await person.wait(lambda key=key: key.help[:40] in person.text)

    sit_down(shop, steps, size=(120, 80))
    for screen in ScreenName:
        shown = {f"{key.shown} {key.word}" for key in keys_of(screen, is_read_only=False)}
        assert set(footer_keys(screen, is_read_only=False)) <= shown
        presses = [press for key in keys_of(screen, is_read_only=False) for press in key.presses]
        assert len(presses) == len(set(presses))
        assert not [press for press in presses if "ctrl" in press or "alt" in press or press[1:].isdigit()]
