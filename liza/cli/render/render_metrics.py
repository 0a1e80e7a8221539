"""Metrics as text for people. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liza.cli.render.columns import align_columns
from liza.cli.render.text_formats import count_noun, shorten_line
from liza.rules.durations import format_duration

Row = Mapping[str, Any]


def format_metrics(found: Row) -> str:
    """The sprint in sentences, a table of the tasks, and one of what was used by task, agent, program and outcome."""
    lines = [
        _sprint_line(found),
        *_goal_time_lines(found),
        *_verdicts(found),
        *_messages(found["messages"]),
        *_anomalies(found),
    ]
    lines += [f"warning: {warning}" for warning in found["warnings"]]
    if found["tasks"]:
        lines += ["", _task_table(found["tasks"])]
    lines += [f"\n{_usage_table(label, found[name])}" for name, label in _USAGE_TABLES.items() if found[name]]
    return "\n".join(lines)


def _sprint_line(found: Row) -> str:
    states = " · ".join(f"{number} {name.lower().replace('_', ' ')}" for name, number in found["by_status"].items())
    merged = f"{found['sprint']}: {found['merged']} of {count_noun(found['total'], 'task')} merged"
    return f"{merged} ({states})" if states else merged


def _goal_time_lines(found: Row) -> list[str]:
    if found["goal_seconds"] is None:
        return []
    done = "took" if found["goal_status"] != "IN_PROGRESS" else "has taken"
    return [
        f"the goal {done} {format_duration(found['goal_seconds'])}; "
        f"something waited for you during {format_duration(found['waiting_seconds'])} of it"
    ]


def _verdicts(found: Row) -> list[str]:
    lines = []
    if found["approval_rate"] is not None:
        given = f"{found['approved']} approved, {found['rejected']} rejected"
        lines.append(f"verdicts: {given} ({found['approval_rate']:.0%} approved)")
    if found["untested_merges"]:
        lines.append(f"{count_noun(found['untested_merges'], 'merge')} without a test")
    return lines


def _messages(found: Row) -> list[str]:
    if not found["attempted"] and not found["waiting"]:
        return []
    parts = [
        f"{found['first_try']} read at the first try",
        f"{found['after_retry']} later",
        f"{found['escalated_to_brief']} put into a brief",
        f"{found['failed']} not seen to be read",
        f"{found['waiting']} waiting",
    ]
    line = f"{count_noun(found['attempted'], 'message')} to agents: {', '.join(parts)}"
    if found["median_seconds"] is not None:
        line += f"; read after {found['median_seconds']:.1f} s (median)"
    return [line, *(f"warning: {place} cannot be read" for place in found["unreadable"])]


def _anomalies(found: Row) -> list[str]:
    told = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in found["anomalies"].items())
    return [f"reported by agents: {told}"] if told else []


def _task_table(rows: Any) -> str:
    cells = [["task", "status", "time", "tries", "waited for you"]]
    for one in rows:
        time = "-" if one["seconds"] is None else format_duration(one["seconds"])
        waited = format_duration(one["waiting_seconds"]) if one["waiting_seconds"] else "-"
        cells.append([str(one["id"]), str(one["status"]), time, str(one["tries"]), waited])
    return align_columns(cells)


_USAGE_TABLES: Final = {"by_task": "task", "by_agent": "agent", "by_program": "program", "by_outcome": "outcome"}


def _usage_table(name: str, sums: Row) -> str:
    rows = [[name, "sessions", "time", "tokens", "money"]]
    for whose, one in sums.items():
        tokens = "-" if one["tokens"] is None else f"{one['tokens']:,}{' (estimate)' if one['estimated'] else ''}"
        money = "-" if one["money"] is None else f"${one['money']:.2f}"
        rows.append([shorten_line(whose, 100), str(one["sessions"]), format_duration(one["seconds"]), tokens, money])
    return align_columns(rows)
