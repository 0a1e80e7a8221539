"""The screen History: what happened, the newest first, with a line where the person looked last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from liza.model.narration import NewsItem
from liza.printing.render_patch import EventList
from liza.text.formats import count_noun
from liza.ui.rules.lines import Line, Target, TargetKind, cut_line, make_rule, painted_lines, text_line
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.ui.rules.task_lines import age_since
from liza.view.history import PastNews
from liza.view.rules.structs import Picture


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture, latest = snapshot.picture, snapshot.latest
    assert isinstance(picture, Picture)
    assert isinstance(latest, PastNews)
    if not latest.items:
        return (text_line("nothing has happened yet"),)
    lines = list(_event_lines(tuple(reversed(latest.items)), snapshot, view))
    if latest.archived:
        tasks = count_noun(latest.archived, "task")
        lines.append(text_line(f"the events of {tasks} are in the archive: liza history ID"))
    return tuple(cut_line(line, view.list_columns) for line in lines)


def _event_lines(items: Sequence[NewsItem], snapshot: Snapshot, view: PictureView) -> Iterator[Line]:
    assert isinstance(snapshot.picture, Picture)
    tasks = {row.task.id for row in snapshot.picture.tasks}
    events = EventList(snapshot.time, view.list_columns, True)
    unseen = sum(_is_unseen(item, view) for item in items)
    for number, item in enumerate(items):
        if number == unseen:
            yield from _seen_rule(unseen, snapshot, view)
        subject = item.text.split(" ", 1)[0]
        target = Target(TargetKind.TASK, subject) if subject in tasks else None
        for line in painted_lines(events.format((item,))):
            yield Line(line.spans, target if line.text.startswith("  ") else None)
    if unseen == len(items):
        yield from _seen_rule(unseen, snapshot, view)


def _is_unseen(item: NewsItem, view: PictureView) -> bool:
    return view.seen is not None and item.time is not None and item.time > view.seen


def _seen_rule(unseen: int, snapshot: Snapshot, view: PictureView) -> Iterator[Line]:
    """Yield the line between what the person has seen and what is new."""
    if view.seen is not None:
        new = count_noun(unseen, "event") if unseen else "nothing"
        yield make_rule(f"{new} since you looked, {age_since(view.seen, snapshot.time)} ago", view.list_columns)
