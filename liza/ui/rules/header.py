"""The header: goal, how fresh the picture is, what waits, progress, cost, agents; and the footer with the keys."""

from __future__ import annotations

from collections.abc import Iterable

from liza.model.spending import Costs
from liza.model.statuses import TaskWord
from liza.printing.columns import cell_width
from liza.text.formats import count_noun, format_duration
from liza.ui.rules.agent_list import AGENT_SIGNS
from liza.ui.rules.filtering import NEEDS_PERSON, count_hidden, describe_filter
from liza.ui.rules.keys import footer_keys
from liza.ui.rules.lines import Cell, Line, Span, Tone, clean, cut, cut_line, make_row, text_line
from liza.ui.rules.picture_view import LOW_BELOW, PictureView
from liza.ui.rules.snapshot import Snapshot, Unread
from liza.view.rules.structs import AgentLine, Picture

STALE_AFTER = 10.0
"""Seconds after which a picture is said to be old: it is read every few seconds also without a change."""
_BAR_CELLS, _BAR_FROM = 20, 60
"""Cells of the bar of the merged tasks, and the columns from which it is shown."""


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the header: three lines, on a terminal with less than 12 rows one."""
    picture = snapshot.picture
    goal = "?" if isinstance(picture, Unread) else picture.goal
    fresh, tone = describe_freshness(snapshot, view.age)
    clock = f"{fresh}  {snapshot.time.astimezone():%H:%M}"
    first = make_row(
        (Cell(goal, tone=Tone.BOLD), Cell(clock, min(len(clock), view.columns // 2), tone, is_right=True)), view.columns
    )
    if isinstance(picture, Unread):
        return (first,)
    counts = _counts(picture, view)
    lines = (counts,) if view.rows < LOW_BELOW else (first, counts, _agents(picture, view.columns))
    return (*lines, _filter_line(picture, view)) if view.is_filtered else lines


def _filter_line(picture: Picture, view: PictureView) -> Line:
    """Return what the filter lists, and how many rows it hides."""
    hidden = count_noun(count_hidden(picture, view), "row")
    text = f"only {describe_filter(view.filter)}: {hidden} hidden; esc shows all; what waits for you stays"
    return cut_line(text_line(text, Tone.YELLOW), view.columns)


def describe_freshness(snapshot: Snapshot, age: float) -> tuple[str, Tone]:
    """Return whether the picture is live, with the tone of the words."""
    if snapshot.fault is not None:
        return "not readable", Tone.RED
    if age >= STALE_AFTER:
        return f"no news for {format_duration(age)}", Tone.YELLOW
    return (snapshot.feed, Tone.YELLOW) if snapshot.feed else ("live", Tone.DIM)


def _counts(picture: Picture, view: PictureView) -> Line:
    waits = len(picture.waits)
    merged = picture.counts.get(TaskWord.MERGED, 0)
    bar = "=" * (_BAR_CELLS * merged // picture.total if picture.total else 0)
    spans = [
        Span(f" {waits} {'waits' if waits == 1 else 'wait'} for you", Tone.RED if waits else Tone.DIM),
        Span(f"   {bar:.<{_BAR_CELLS}}  " if view.columns >= _BAR_FROM else "   ", Tone.GREEN),
        Span(f"{merged}/{picture.total} merged  "),
        _cost_span(picture.costs),
    ]
    if picture.is_off or picture.up:
        spans.insert(1, Span("   the crew is stopped", Tone.YELLOW))
    spans += [Span(f"  {name} is set", Tone.YELLOW) for name in picture.signals]
    return cut_line(Line(tuple(spans)), view.columns)


def _cost_span(costs: Costs) -> Span:
    """Return the cost and its limit; a cost that is not known is never zero."""
    if costs.unreadable is not None:
        return Span(f"cost ? {clean(costs.unreadable)}", Tone.RED)
    limit = costs.budget.get("money_per_sprint")
    of = f" of ${limit:.2f}" if limit is not None else ""
    if costs.money is None:
        return Span(f"cost not known{of}" if costs.sessions else "nothing spent yet")
    unpriced = f", {count_noun(costs.unpriced, 'session')} without a price" if costs.unpriced else ""
    return Span(f"${costs.money:.2f}{of}{unpriced}")


def _agents(picture: Picture, columns: int) -> Line:
    """Return the agents in their order; if not all fit, those that need a person come first."""
    line = _agent_line(picture.agents)
    if cell_width(line.text) > columns:
        line = _agent_line(sorted(picture.agents, key=lambda agent: agent.word not in NEEDS_PERSON))
    return cut_line(line, columns)


def _agent_line(agents: Iterable[AgentLine]) -> Line:
    spans = [Span(" ")]
    for line in agents:
        sign, tone = AGENT_SIGNS[line.word]
        spans.append(Span(f"{sign}{line.row.id}{_context(line)}  ", tone))
    return Line(tuple(spans))


def _context(line: AgentLine) -> str:
    return "" if line.row.context is None else f" {line.row.context}%"


def draw_footer(view: PictureView) -> Line:
    """Return the keys of the screen, as many as fit."""
    return Line((Span(cut("  " + "  ".join(footer_keys(view.screen, view.is_read_only)), view.columns), Tone.DIM),))


def draw_small(snapshot: Snapshot, view: PictureView) -> Line:
    """Return the line for a terminal that is too small: how much waits."""
    picture = snapshot.picture
    waits = "?" if isinstance(picture, Unread) else str(len(picture.waits))
    return cut_line(text_line(f"{waits} wait; too small"), view.columns)
