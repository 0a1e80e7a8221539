"""Render one task or one agent as text. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from liza.model.model import Handoff, Status
from liza.model.narration import LIZA, is_crew_event
from liza.model.paths import PERSON_PREFIX
from liza.model.tested import describe_tested
from liza.printing.columns import align_columns, format_fields, format_local_time, paint, shorten_line
from liza.printing.render_crew import format_activity, paint_task_word
from liza.tasks.rules.reviews import format_comment
from liza.text.formats import count_noun, format_duration

Row = Mapping[str, Any]


def format_agent(row: Row, colour: bool) -> str:
    """Return one agent: its fields, then its history, newest first."""
    fields = {**row, "now": format_activity(row), "state": _state_text(row), "turns": _turns_text(row)}
    head = format_fields(_label_fields(fields, _AGENT_LABELS))
    notes = [f"note: {note}" for note in row["notes"]]
    record = format_record(row["record"], colour)
    work = align_columns([_work_cells(line) for line in row["work"][:30]])
    return "\n".join([head, *notes, *(["", record] if record else []), *(["", work] if work else [])])


def _state_text(row: Row) -> str:
    """Return the operating state with its evidence and since when; empty if it is unknown."""
    if row.get("state") is None:
        return ""
    since = f" (since {format_local_time(row['state_since'])})" if row["state_since"] else ""
    return f"{row['state']}: {row['evidence']}{since}"


def _turns_text(row: Row) -> str:
    """Return the phase of the session's turn and who reports it; ``observed`` without a report."""
    if row.get("phase"):
        return f"{row['phase']} (reported by {row.get('reported_by')})"
    return str(row.get("state_source") or "")


def _work_cells(line: Row) -> list[str]:
    names = [str(line[name] or "") for name in ("run", "task", "event")]
    return [format_local_time(line["time"]), *names, shorten_line(line["detail"], 60)]


_COMMITS: Final = ("review_commit", "merge_commit", "landed")
_EVIDENCE: Final = ("run", "conversation")


def format_task(task: Row, colour: bool, *, with_all: bool = False) -> str:
    """Return one task: its text, its fields, its notes, its history.

    ``with_all``: with the board's word for its status, its run and its conversation, and all digits of commits.
    """
    lines = [f"{paint(str(task['id']), 'bold', colour)}  {paint_task_word(task['status'], colour)}", ""]
    lines += _indent_text("", task["description"] or "(no description)")
    for label, text in list_texts(task):
        lines += _indent_text(label, text)
    lines += ["", format_fields(list_facts(task, with_all=with_all))]
    if task["handoff"] is not None:
        lines += [row for label, text in list_handoff(task["handoff"]) for row in _indent_text(label, text)]
    lines += [f"note: {note}" for note in task["notes"]]
    lines += ["", align_columns([_event_cells(event) for event in task["history"]])]
    return "\n".join(lines)


def list_texts(task: Row) -> Iterator[tuple[str, str]]:
    """Yield the texts of a task with their labels: what people and agents wrote."""
    for name, label in _TEXT_LABELS:
        if task.get(name):
            yield label, _field_text(task[name])


def list_facts(task: Row, *, with_all: bool = False) -> dict[str, Any]:
    """Return the other fields of a task that have a value, by their labels. ``with_all``: as in ``format_task``."""
    labels = {**_TASK_LABELS, "review_commit": _COMMIT_LABELS.get(str(task["status"]), "submitted commit")}
    shared = "; ".join(f"{other.name}, {other.path}" for other in task.get("overlaps", ()))
    texts = {"overlaps": shared, "kept_for": _routing_text(task), "conversation": _conversation_text(task)}
    if task.get("tested") is not None:
        texts["tested"] = describe_tested(task["tested"], task.get("remarks", ()))
    if task.get("undo") is not None:
        texts["undo"] = f"{task['undo'].commit[:10]}, {describe_tested(task['undo'].tested, task['undo'].remarks)}"
    texts["review"] = "a person" if task.get("review") == "human" else ""
    if not with_all:
        texts.update((name, (task.get(name) or "")[:10]) for name in _COMMITS)
        texts.update(dict.fromkeys((*_EVIDENCE, "status"), ""))
    return _label_fields({**task, "now": format_activity(task), **texts}, labels)


def list_handoff(note: Handoff) -> Iterator[tuple[str, str]]:
    """Yield the note of the last session, and the start-up check that failed, with their labels."""
    used = note.context_used
    context = "" if used is None else f"\n{used}% of its context window was used"
    if note.summary:
        yield "handed over", f"{note.summary}\nnext: {note.next_action}{context}"
    failed = note.failed_check
    if failed is not None:
        yield "start-up failed", f"{failed.run}, {failed.check}: expected {failed.expected}; found {failed.actual}"


_TEXT_LABELS: Final = (
    ("done_when", "done when"),
    ("scope", "scope"),
    ("missing", "missing"),
    ("rejection_reason", "rejected"),
    ("review_comments", "comments"),
    ("merge_failed", "not merged"),
    ("blocked_reason", "blocked"),
    ("blocked_questions", "asks"),
    ("answers", "answered"),
    ("attempted", "attempted"),
)
_TASK_LABELS: Final = {
    "status": "status",
    "spec_ref": "spec",
    "priority": "priority",
    "epic": "epic",
    "target": "merged into",
    "depends_on": "depends on",
    "waits_for": "waits for",
    "overlaps": "shares files with",
    "kept_for": "kept for",
    "now": "now",
    "author": "author",
    "submitted_from": "from",
    "assigned_to": "coder",
    "run": "run",
    "conversation": "conversation",
    "branch": "branch",
    "directory": "directory",
    "iteration": "try",
    "lease_expires": "lease until",
    "review_commit": "submitted commit",
    "review": "reviewed by",
    "reviewing_by": "reviewer",
    "review_cycles_total": "rejections",
    "approved_by": "approved by",
    "merge_commit": "merged as",
    "landed": "landed as",
    "tested": "merge",
    "undo": "undone as",
    "failed_by": "failed by",
    "superseded_by": "superseded by",
    "supersedes": "supersedes",
    "rescope_reason": "because",
}
_COMMIT_LABELS: Final[Mapping[str, str]] = {
    Status.READY_FOR_REVIEW: "commit in review",
    Status.APPROVED: "approved commit",
    Status.MERGED: "approved commit",
}
_AGENT_LABELS: Final = {
    "id": "agent",
    "role": "role",
    "status": "status",
    "state": "state",
    "turns": "turns",
    "unmeasured": "unmeasured",
    "now": "now",
    "run": "run",
    "current_task": "task",
    "lease_expires": "lease until",
    "program": "program",
    "model": "model",
    "why": "why",
    "runs": "runs",
    "iterations_total": "tries",
    "context_percent": "context used, %",
    "heartbeat": "heartbeat",
}


def _routing_text(task: Row) -> str:
    row = task.get("routing")
    return f"{row['agent']} for {row['seconds']:.0f} s: {row['why']}" if row else ""


def _conversation_text(task: Row) -> str:
    row = task.get("conversation")
    if not row:
        return ""
    return f"{row['run']} continues {row['continues']}" if row["continues"] else f"{row['run']}: new, {row['why']}"


def _label_fields(row: Row, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that have a value, by their labels."""
    return {label: row[name] for name, label in names.items() if name in row and _is_shown(row, name)}


def _is_shown(row: Row, name: str) -> bool:
    return row[name] not in (None, "", (), [], False, 0)


def _field_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "\n".join(map(_item_text, value))


def _item_text(item: Any) -> str:
    if hasattr(item, "question"):
        return f"{item.question} → {item.answer}"
    return format_comment(item) if hasattr(item, "quote") else str(item)


def _event_cells(event: Any) -> list[str]:
    who = LIZA if is_crew_event(event) else (event.run or event.agent or "").removeprefix(PERSON_PREFIX)
    return [format_local_time(event.time), event.event, who, (event.commit or "")[:10], shorten_line(event.detail, 70)]


def _indent_text(label: str, text: str) -> list[str]:
    rows = text.splitlines() or [""]
    return [f"{label:<12}{row}" if number == 0 else f"{'':<12}{row}" for number, row in enumerate(rows)]


_SHOWN_TASKS = 20
_RATES = {
    "approved_at_once": "approved at the first review",
    "merged": "merged",
    "failed": "failed",
    "given_up": "given up",
}


def format_record(record: Row, colour: bool) -> str:
    """Return the record of an agent in this crew, its newest tasks, and a line for each other crew; empty without."""
    parts = []
    if record["tasks"] or any(record["reviews"].values()):
        parts.append("\n".join([paint("work record", "bold", colour), *_summary_lines(record)]))
    if record["tasks"]:
        parts.append(align_columns([tuple(_task_cells(task)) for task in record["tasks"][-_SHOWN_TASKS:]]))
    if record["unreadable"]:
        missing = count_noun(len(record["unreadable"]), "archived task")
        parts.append(
            f"{missing} cannot be read and may belong to this record: {paint('liza validate', 'bold', colour)}"
        )
    parts += [_imported_text(other, colour) for other in record["imported"]]
    return "\n\n".join(parts)


def _summary_lines(record: Row) -> Iterator[str]:
    if record["tasks"]:
        counts = ", ".join(f"{number} {outcome}" for outcome, number in record["counts"].items())
        cost = "" if record["cost"] is None else f", ${record['cost']:.2f}"
        yield f"  {count_noun(len(record['tasks']), 'task')}: {counts}{cost}"
        rates = [f"{record['rates'][name]:.0%} {label}" for name, label in _RATES.items() if record["rates"][name]]
        yield f"  {', '.join(rates) or 'no task is closed yet'}"
        each = record["rates"]["rejections_per_task"]
        reviewed = sum(bool(task["reviews"]) for task in record["tasks"])
        rejections = count_noun(round((each or 0) * reviewed), "rejection")
        quality = [f"{rejections} in {count_noun(reviewed, 'reviewed task')}"] if reviewed else []
        quality += [f"{count_noun(record['failed_merges'], 'failed merge')}"] if record["failed_merges"] else []
        yield from [f"  {', '.join(quality)}"] if quality else []
    for label, name in (("areas", "areas"), ("languages", "languages")):
        # Files beside the directories of a project are in no area.
        counts = ", ".join(f"{key} {number}" for key, number in record[name].items() if key != ".")
        if counts:
            yield f"  {label}: {counts}"
    if record["programs"]:
        yield f"  programs: {', '.join(record['programs'])}"
    reviews = record["reviews"]
    if any(reviews.values()):
        failed = (
            f", {count_noun(reviews['failed_merges'], 'approval')} did not merge" if reviews["failed_merges"] else ""
        )
        yield f"  reviews: {reviews['approved']} approved, {reviews['rejected']} rejected{failed}"


def _task_cells(task: Row) -> Iterator[str]:
    yield f"  {task['task']}"
    yield str(task["outcome"])
    yield count_noun(task["tries"], "try") if task["tries"] == 1 else f"{task['tries']} tries"
    yield f"{count_noun(task['reviews'], 'review')}" if task["reviews"] else ""
    yield "" if task["seconds"] is None else f"approved after {format_duration(task['seconds'])}"
    yield "" if task["cost"] is None else f"${task['cost']:.2f}"


def _imported_text(other: Row, colour: bool) -> str:
    head = (
        paint(f"in {other['repository']}", "bold", colour) + f" (revision {other['revision']}, {other['proof'][:10]})"
    )
    return "\n".join([head, *_summary_lines(other)])
