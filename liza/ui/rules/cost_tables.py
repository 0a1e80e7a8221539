"""The screen Costs: what the sprint has used of its budget, by task, agent, program, model, account and day."""

from __future__ import annotations

from liza.printing.render_metrics import format_usage
from liza.ui.rules.lines import EMPTY, Line, Target, TargetKind, Tone, cut_line, painted_lines, text_line
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.ui.rules.task_lines import wrap_words
from liza.view.metrics import UsageReport
from liza.view.rules.structs import Picture


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture, usage = snapshot.picture, snapshot.costs
    assert isinstance(picture, Picture)
    assert isinstance(usage, UsageReport)
    tone = Tone.PLAIN if picture.costs.unreadable is None else Tone.RED
    text = f"? {picture.costs.unreadable}" if picture.costs.unreadable else picture.costs.text
    lines = [*(text_line(part, tone) for part in wrap_words(text, max(1, view.list_columns))), EMPTY]
    targets = {
        **{row.task.id: Target(TargetKind.TASK, row.task.id) for row in picture.tasks},
        **{line.row.id: Target(TargetKind.AGENT, line.row.id) for line in picture.agents},
    }
    for line in painted_lines(format_usage(usage)):
        owner = line.text.split(" ", 1)[0]
        lines.append(Line(line.spans, targets.get(owner)))
    return tuple(cut_line(line, view.list_columns) for line in lines)
