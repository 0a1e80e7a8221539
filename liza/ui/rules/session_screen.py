"""The screen Session: what an agent does and why, in a few lines that stay, then the events, newest last."""

from __future__ import annotations

from collections.abc import Iterator

from liza.printing.columns import shorten_program
from liza.printing.render_session import SessionStyle, format_session
from liza.text.formats import count_noun, format_duration
from liza.ui.rules.lines import Line, Tone, make_rule, painted_lines, text_line, wrap_line
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import SessionPage, Snapshot
from liza.view.rules.structs import AgentLine, Picture


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the events of the session as `liza logs` prints them."""
    page = snapshot.session
    assert isinstance(page, SessionPage)
    width = view.list_columns
    text = "\n".join(format_session(page.events, SessionStyle(width, with_colours=True, with_times=True)))
    notes = [text_line(note, Tone.YELLOW) for note in page.notes]
    events = [part for line in painted_lines(text) for part in wrap_line(line, width)] if text else []
    return (*events, *notes)


def draw_head(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return what stays above the events: the agent, what it does and since when, its task, and why it waits."""
    page, picture = snapshot.session, snapshot.picture
    if not isinstance(page, SessionPage) or not isinstance(picture, Picture):
        return ()
    line = next((line for line in picture.agents if line.row.run == page.run), None)
    state = "this run is over" if line is None else ", ".join(_describe(line))
    head = [make_rule(f"SESSION {page.run}", view.columns), text_line(f" {state}")]
    task = next((row.task for row in picture.tasks if row.task.id == page.task), None)
    if task is not None:
        head.append(text_line(f" {task.id}: {task.description}"))
    if line is not None and line.reason:
        head.append(text_line(f" {line.reason}", Tone.YELLOW))
    return tuple(next(wrap_line(row, view.columns)) for row in head)


def _describe(line: AgentLine) -> Iterator[str]:
    row = line.row
    since = "" if row.seconds is None else f" for {format_duration(row.seconds)}"
    yield f"{row.doing or line.word}{since}"
    if row.program:
        yield f"{shorten_program(row.program)}{f' with {row.model}' if row.model else ''}"
    if row.calls:
        yield count_noun(row.calls, "call")
    if row.context is not None:
        yield f"context {row.context} %"
    if row.denials:
        yield f"{row.denials} denied"
