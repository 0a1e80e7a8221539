"""Laws of the screens: what waits is never hidden, each task is listed once, each line fits whatever is written."""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import dataclass
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from liza.model.errors import UsageError
from liza.model.statuses import TaskWord
from liza.model.targets import CommitsAhead
from liza.model.value_classes import replace
from liza.printing.columns import cell_width
from liza.ui.rules.drawing import draw, draw_loading
from liza.ui.rules.filtering import count_hidden, parse_filter
from liza.ui.rules.lines import Line, TargetKind, Tone
from liza.ui.rules.picture_view import Filter, Fold, PictureView
from liza.ui.rules.snapshot import ScreenName, Snapshot, Unread, Wanted
from liza.view.history import PastNews
from liza.view.rules.picture import build_picture
from liza.view.rules.structs import CrewFacts, Picture
from tests.unit import boards
from tests.unit.ui.crews import LISTS, snapshots

sizes = st.tuples(st.integers(1, 170), st.integers(1, 60))
filters = st.builds(
    Filter,
    words=st.sampled_from(((), ("merged",), ("to do", "asks"))),
    agent=st.sampled_from(("", "coder-1")),
    text=st.sampled_from(("", "pdf")),
)


@st.composite
def views(draw_value: st.DrawFn) -> PictureView:
    columns, rows = draw_value(sizes)
    return PictureView(
        columns=columns,
        rows=rows,
        wanted=Wanted(draw_value(st.sampled_from(LISTS))),
        filter=draw_value(filters),
        unfolded=frozenset(draw_value(st.sets(st.sampled_from(Fold)))),
        seen=draw_value(st.sampled_from((None, boards.later(15)))),
    )


def _shown(snapshot: Snapshot, view: PictureView) -> tuple[Snapshot, PictureView]:
    """Return the snapshot as it is read for the screen, and the view with the first line chosen."""
    snapshot = replace(snapshot, wanted=view.wanted)
    targets = [line.target for line in draw(snapshot, view).body if line.target is not None]
    return snapshot, replace(view, chosen=targets[0] if targets else None)


@given(snapshots(), views())
def test_each_line_fits_and_controls_no_terminal(snapshot: Snapshot, view: PictureView) -> None:
    snapshot, view = _shown(snapshot, view)
    drawing = draw(snapshot, view)
    for lines, width in (
        ((*drawing.header, drawing.footer), view.columns),
        (drawing.body, view.list_columns),
        (drawing.side, view.side_columns),
    ):
        for line in lines:
            assert cell_width(line.text) <= width, line.text
            assert cell_len(line.text) <= width, line.text
            assert not [character for character in line.text if unicodedata.category(character) in ("Cc", "Zl", "Zp")]


@given(snapshots(), views())
def test_equal_snapshots_draw_equal_lines(snapshot: Snapshot, view: PictureView) -> None:
    snapshot, view = _shown(snapshot, view)
    assert draw(snapshot, view) == draw(replace(snapshot), replace(view))


def _waiting_lines(lines: tuple[Line, ...]) -> list[Line]:
    """Return the rows of what waits: those with a red mark, up to the next heading."""
    texts = [line.text for line in lines]
    first = next((row for row, text in enumerate(texts) if text.startswith(" WAITS FOR YOU")), len(lines))
    rows = takewhile(lambda line: not line.text.endswith("─"), lines[first + 1 :])
    return [line for line in rows if line.spans[0].text.strip() == "!" and line.spans[0].tone is Tone.RED]


@given(snapshots(), views())
def test_what_waits_is_never_hidden_and_its_number_agrees(snapshot: Snapshot, view: PictureView) -> None:
    view = replace(view, wanted=Wanted(), columns=max(view.columns, 40), rows=max(view.rows, 8))
    drawing = draw(snapshot, view)
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    assert len(_waiting_lines(drawing.body)) == len(picture.waits)
    counts = drawing.header[0 if view.rows < 12 else 1]
    assert int(counts.text.split()[0]) == len(picture.waits)


@given(snapshots(), st.integers(40, 170))
def test_each_task_is_in_exactly_one_group(snapshot: Snapshot, columns: int) -> None:
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    view = PictureView(columns=columns, rows=40, unfolded=frozenset(Fold))
    waiting = [alarm.about for alarm in picture.waits]
    for screen in (ScreenName.NOW, ScreenName.BOARD):
        body = draw(snapshot, replace(view, wanted=Wanted(screen))).body
        names = [line.target.name for line in body if line.target and line.target.kind is TargetKind.TASK]
        if screen is ScreenName.NOW:
            assert [name for name in names if name in waiting] == [name for name in waiting if name != "crew"]
            names = [name for name in names if name not in waiting]
            assert sorted(names) == sorted(row.task.id for row in picture.tasks if row.task.id not in waiting)
        else:
            assert sorted(names) == sorted(row.task.id for row in picture.tasks)


@given(snapshots(), filters)
def test_the_header_counts_what_a_filter_hides(snapshot: Snapshot, wanted: Filter) -> None:
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    view = PictureView(columns=100, rows=40, unfolded=frozenset(Fold), wanted=Wanted(ScreenName.BOARD))

    def listed(view: PictureView) -> set[str]:
        lines = draw(snapshot, view).body
        return {line.target.name for line in lines if line.target and line.target.kind is TargetKind.TASK}

    filtered = replace(view, filter=wanted)
    hidden = listed(view) - listed(filtered)
    assert count_hidden(picture, filtered) == len(hidden)
    assert not hidden & {alarm.about for alarm in picture.waits}
    if wanted != Filter():
        assert f"{len(hidden)} row" in draw(snapshot, filtered).header[-1].text


def test_no_character_is_wider_drawn_than_it_is_counted() -> None:
    letters = (chr(number) for number in range(sys.maxunicode + 1) if unicodedata.category(chr(number)) != "Cs")
    assert [letter for letter in letters if cell_width(letter) < cell_len(letter)] == []


def test_a_filter_is_announced_only_where_it_filters() -> None:
    view = PictureView(columns=80, rows=24, filter=Filter(text="pdf"))
    assert view.is_filtered
    assert not replace(view, wanted=Wanted(ScreenName.COSTS)).is_filtered


@dataclass(frozen=True)
class Typed:
    text: str
    words: tuple[str, ...]
    agent: str = ""


@pytest.mark.parametrize(
    "typed",
    [
        Typed("", ()),
        Typed("to fix", (TaskWord.TO_FIX,)),
        Typed("In review, to do coder-1", (TaskWord.IN_REVIEW, TaskWord.TO_DO), "coder-1"),
        Typed("coder-1,stuck", ("stuck",), "coder-1"),
    ],
    ids=lambda typed: typed.text or "nothing",
)
def test_a_filter_is_typed_as_the_words_that_are_shown(typed: Typed) -> None:
    wanted = parse_filter(typed.text, Filter(text="pdf"), ["coder-1"])
    assert wanted == Filter(typed.words, typed.agent, "pdf")


def test_an_unknown_word_is_refused_with_a_similar_word() -> None:
    with pytest.raises(UsageError, match="merged"):
        parse_filter("mergd", Filter(), ["coder-1"])


@given(snapshots())
@settings(max_examples=20)
def test_what_cannot_be_read_is_never_drawn_as_zero(snapshot: Snapshot) -> None:
    unread = Unread("line 12 is broken", "liza doctor")
    for screen, part in ((ScreenName.QUEUE, "queue"), (ScreenName.COSTS, "costs"), (ScreenName.HISTORY, "latest")):
        wanted = Wanted(screen)
        body = draw(
            replace(snapshot, wanted=wanted, **{part: unread}), PictureView(columns=80, rows=24, wanted=wanted)
        ).body
        assert [line.text.strip() for line in body][-1] == "liza doctor"
        assert "line 12 is broken" in body[0].text
    small = PictureView(columns=30, rows=6)
    assert draw(replace(snapshot, picture=unread), small).header[0].text.startswith("?")


@given(snapshots())
@settings(max_examples=20)
def test_costs_that_are_not_known_are_not_zero(snapshot: Snapshot) -> None:
    header = draw(snapshot, PictureView(columns=160, rows=40)).header[1].text
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    assert "$0" not in header
    assert ("?" in header) == (picture.costs.unreadable is not None)


def _empty_crew(**fields: object) -> Snapshot:
    facts = CrewFacts(now=boards.NOW, state=boards.board(), **fields)  # type: ignore[arg-type]
    return Snapshot(time=boards.NOW, wanted=Wanted(), picture=build_picture(facts), latest=PastNews(()))


def _text(snapshot: Snapshot, view: PictureView) -> str:
    drawing = draw(snapshot, view)
    return "\n".join(line.text for line in (*drawing.header, *drawing.body))


def test_an_empty_crew_names_what_fills_it() -> None:
    text = _text(_empty_crew(), PictureView(columns=80, rows=24))
    assert "no tasks yet" in text
    assert "no agents yet: liza up" in text
    assert "nothing spent yet" in text


def test_a_stopped_crew_and_a_reached_goal_name_a_command() -> None:
    ahead = CommitsAhead("integration", "main", 3)
    text = _text(_empty_crew(up="liza up", ahead=ahead), PictureView(columns=120, rows=24))
    assert "the crew is stopped: liza up" in text
    assert ahead.next in text


def test_before_the_first_read_no_group_is_drawn_as_empty() -> None:
    drawing = draw_loading(PictureView(columns=80, rows=24))
    assert not [line for line in (*drawing.header, *drawing.body) if any(digit in line.text for digit in "0123456789")]
