"""The side of a wide terminal: the chosen task, agent or alarm, whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from liza.model.value_classes import asdict
from liza.printing.columns import wrap_text
from liza.printing.render_task import format_task
from liza.ui.rules.agent_list import agent_details, agent_word_text
from liza.ui.rules.lines import EMPTY, Line, Span, TargetKind, Tone, fit_height, painted_lines, text_line, wrap_line
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.ui.rules.task_lines import age_text, alarm_target, wrap_words
from liza.view.rules.structs import AgentLine, Picture, TaskRow

_BORDER = Span("│ ", Tone.DIM)


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the side, as many as there are rows; none on a narrow terminal."""
    picture = snapshot.picture
    if not view.side_columns or not isinstance(picture, Picture):
        return ()
    lines = fit_height(_chosen_lines(picture, view, view.side_columns - 2), view.body_rows)
    return tuple(Line((_BORDER, *line.spans)) for line in lines)


def _chosen_lines(picture: Picture, view: PictureView, width: int) -> Iterator[Line]:
    target = view.chosen
    if target is None:
        return
    for alarm in picture.waits:
        if alarm_target(alarm, picture) == target:
            age = f" (for {age_text(alarm.seconds)})" if alarm.seconds is not None else ""
            yield from (text_line(part, Tone.RED) for part in wrap_words(f"{alarm.message}{age}", width))
            yield from wrap_line(text_line(alarm.next, Tone.BOLD), width)
            yield EMPTY
    if target.kind is TargetKind.TASK:
        row = next((row for row in picture.tasks if row.task.id == target.name), None)
        yield from () if row is None else _task_lines(row, width)
    elif target.kind is TargetKind.AGENT:
        line = next((line for line in picture.agents if line.row.id == target.name), None)
        yield from () if line is None else _agent_lines(line, picture.time, width)


def _task_lines(row: TaskRow, width: int) -> Iterator[Line]:
    """Yield what `liza task show` prints of a task, as far as the board has it."""
    fields = {**asdict(row.task), "missing": row.missing, "waits_for": row.waits_for, "overlaps": row.overlaps}
    fields |= {"handoff": None, "notes": ()}
    history = tuple(reversed(row.task.history))
    text = format_task({**fields, "history": history, "answers": row.task.answers}, True)
    for line in painted_lines(wrap_text(text, width, 4)):
        yield from wrap_line(line, width)


def _agent_lines(line: AgentLine, now: datetime, width: int) -> Iterator[Line]:
    yield text_line(line.row.id, Tone.BOLD)
    work = f" on {line.row.current_task}" if line.row.current_task else ""
    yield text_line(f"{agent_word_text(line, now)}{work}")
    for text in agent_details(line):
        yield EMPTY
        yield from (text_line(part) for part in wrap_words(text, width))
