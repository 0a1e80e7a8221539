"""One task, and one agent, as text for people. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liza.cli.render.columns import align_columns, paint
from liza.cli.render.render_crew import STATUS_COLOURS, format_activity
from liza.cli.render.text_formats import format_fields, format_local_time, shorten_line
from liza.rules.reports.narration import LIZA, is_crew_event

Row = Mapping[str, Any]


def format_agent(row: Row, colour: bool) -> str:
    """One agent: its fields, then what it did, newest first."""
    head = _labelled_fields({**row, "now": format_activity(row)}, _AGENT_LABELS)
    notes = [f"note: {note}" for note in row["notes"]]
    work = align_columns([_work_cells(line) for line in row["work"][:30]])
    return "\n".join([head, *notes, *(["", work] if work else [])])


def _work_cells(line: Row) -> list[str]:
    named = [str(line[name] or "") for name in ("run", "task", "event")]
    return [format_local_time(line["time"]), *named, shorten_line(line["detail"], 60)]


def format_task(found: Row, colour: bool) -> str:
    """A task: what is asked, where it stands, what was said, what happened."""
    state = paint(str(found["status"]), STATUS_COLOURS.get(str(found["status"]), "plain"), colour)
    lines = [f"{paint(str(found['id']), 'bold', colour)}  {state}", ""]
    lines += _indent_text("", found["description"] or "(no description)")
    for name, label in _TEXT_LABELS:
        if found.get(name):
            lines += _indent_text(label, _field_text(found[name]))
    lines += ["", _labelled_fields({**found, "now": format_activity(found)}, _TASK_LABELS)]
    if found["handoff"] is not None:
        lines += _indent_text("handed over", f"{found['handoff'].summary}\nnext: {found['handoff'].next_action}")
    lines += [f"note: {note}" for note in found["notes"]]
    lines += ["", align_columns([_event_cells(one) for one in found["history"]])]
    return "\n".join(lines)


_TEXT_LABELS: Final = (
    ("done_when", "done when"),
    ("scope", "scope"),
    ("missing", "missing"),
    ("rejection_reason", "rejected"),
    ("merge_failed", "not merged"),
    ("blocked_reason", "blocked"),
    ("blocked_questions", "asks"),
    ("answers", "answered"),
    ("attempted", "attempted"),
)
_TASK_LABELS: Final = {
    "spec_ref": "spec",
    "priority": "priority",
    "depends_on": "depends on",
    "waits_for": "waits for",
    "now": "now",
    "assigned_to": "coder",
    "run": "run",
    "branch": "branch",
    "directory": "directory",
    "iteration": "try",
    "lease_expires": "lease until",
    "review_commit": "commit in review",
    "reviewing_by": "reviewer",
    "review_cycles_total": "rejections",
    "approved_by": "approved by",
    "merge_commit": "merged as",
    "tested": "tested",
    "failed_by": "failed by",
    "superseded_by": "superseded by",
    "supersedes": "supersedes",
}
_AGENT_LABELS: Final = {
    "id": "agent",
    "role": "role",
    "status": "status",
    "now": "now",
    "run": "run",
    "current_task": "task",
    "lease_expires": "lease until",
    "program": "program",
    "why": "why",
    "runs": "runs",
    "iterations_total": "tries",
    "heartbeat": "heard of",
}


def _labelled_fields(found: Row, names: Mapping[str, str]) -> str:
    """The fields that are said, under the words that the rest of the page uses."""
    said = {label: found[name] for name, label in names.items() if name in found and _is_shown(found, name)}
    return format_fields(said)


def _is_shown(found: Row, name: str) -> bool:
    if name == "tested":
        return found[name] is not None
    return found[name] not in (None, "", (), [], False, 0)


def _field_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "\n".join(f"{one.question} → {one.answer}" if hasattr(one, "question") else str(one) for one in value)


def _event_cells(one: Any) -> list[str]:
    who = LIZA if is_crew_event(one) else one.run or one.agent or ""
    return [format_local_time(one.time), one.event, who, (one.commit or "")[:10], shorten_line(one.detail, 70)]


def _indent_text(label: str, text: str) -> list[str]:
    rows = text.splitlines() or [""]
    return [f"{label:<12}{row}" if number == 0 else f"{'':<12}{row}" for number, row in enumerate(rows)]
