"""One task, and one agent, as text for people. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liza.cli.render.columns import paint, table
from liza.cli.render.phrases import fields, local, one_line
from liza.cli.render.render_crew import STATUS_COLOURS, doing
from liza.rules.reports.narration import LIZA, is_lizas

Row = Mapping[str, Any]


def agent(row: Row, colour: bool) -> str:
    """One agent: its fields, then what it did, newest first."""
    head = _facts({**row, "now": doing(row)}, _AGENT)
    notes = [f"note: {note}" for note in row["notes"]]
    work = table([_done(line) for line in row["work"][:30]])
    return "\n".join([head, *notes, *(["", work] if work else [])])


def _done(line: Row) -> list[str]:
    named = [str(line[name] or "") for name in ("run", "task", "event")]
    return [local(line["time"]), *named, one_line(line["detail"], 60)]


def task(found: Row, colour: bool) -> str:
    """A task: what is asked, where it stands, what was said, what happened."""
    state = paint(str(found["status"]), STATUS_COLOURS.get(str(found["status"]), "plain"), colour)
    lines = [f"{paint(str(found['id']), 'bold', colour)}  {state}", ""]
    lines += _indented("", found["description"] or "(no description)")
    for name, label in _TEXTS:
        if found.get(name):
            lines += _indented(label, _said(found[name]))
    lines += ["", _facts({**found, "now": doing(found)}, _FACTS)]
    if found["handoff"] is not None:
        lines += _indented("handed over", f"{found['handoff'].summary}\nnext: {found['handoff'].next_action}")
    lines += [f"note: {note}" for note in found["notes"]]
    lines += ["", table([_event(one) for one in found["history"]])]
    return "\n".join(lines)


_TEXTS: Final = (
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
_FACTS: Final = {
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
_AGENT: Final = {
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


def _facts(found: Row, names: Mapping[str, str]) -> str:
    """The fields that are said, under the words that the rest of the page uses."""
    said = {label: found[name] for name, label in names.items() if name in found and _is_said(found, name)}
    return fields(said)


def _is_said(found: Row, name: str) -> bool:
    if name == "tested":
        return found[name] is not None
    return found[name] not in (None, "", (), [], False, 0)


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "\n".join(f"{one.question} → {one.answer}" if hasattr(one, "question") else str(one) for one in value)


def _event(one: Any) -> list[str]:
    who = LIZA if is_lizas(one) else one.run or one.agent or ""
    return [local(one.time), one.event, who, (one.commit or "")[:10], one_line(one.detail, 70)]


def _indented(label: str, text: str) -> list[str]:
    rows = text.splitlines() or [""]
    return [f"{label:<12}{row}" if number == 0 else f"{'':<12}{row}" for number, row in enumerate(rows)]
