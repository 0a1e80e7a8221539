"""Metrics as text for people. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liza.cli.render.columns import table
from liza.cli.render.phrases import counted, one_line
from liza.rules.durations import spelled

Row = Mapping[str, Any]


def metrics(found: Row) -> str:
    """The sprint in sentences, a table of the tasks, and one of what was used by task, agent, program and outcome."""
    lines = [_tasks(found), *_time(found), *_verdicts(found), *_messages(found["messages"]), *_anomalies(found)]
    lines += [f"warning: {warning}" for warning in found["warnings"]]
    if found["tasks"]:
        lines += ["", _by_task(found["tasks"])]
    lines += [f"\n{_used_by(label, found[name])}" for name, label in _USED_BY.items() if found[name]]
    return "\n".join(lines)


def _tasks(found: Row) -> str:
    states = " · ".join(f"{number} {name.lower().replace('_', ' ')}" for name, number in found["by_status"].items())
    merged = f"{found['sprint']}: {found['merged']} of {counted(found['total'], 'task')} merged"
    return f"{merged} ({states})" if states else merged


def _time(found: Row) -> list[str]:
    if found["goal_seconds"] is None:
        return []
    done = "took" if found["goal_status"] != "IN_PROGRESS" else "has taken"
    return [
        f"the goal {done} {spelled(found['goal_seconds'])}; "
        f"something waited for you during {spelled(found['waiting_seconds'])} of it"
    ]


def _verdicts(found: Row) -> list[str]:
    lines = []
    if found["approval_rate"] is not None:
        given = f"{found['approved']} approved, {found['rejected']} rejected"
        lines.append(f"verdicts: {given} ({found['approval_rate']:.0%} approved)")
    if found["untested_merges"]:
        lines.append(f"{counted(found['untested_merges'], 'merge')} without a test")
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
    line = f"{counted(found['attempted'], 'message')} to agents: {', '.join(parts)}"
    if found["median_seconds"] is not None:
        line += f"; read after {found['median_seconds']:.1f} s (median)"
    return [line, *(f"warning: {place} cannot be read" for place in found["unreadable"])]


def _anomalies(found: Row) -> list[str]:
    told = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in found["anomalies"].items())
    return [f"reported by agents: {told}"] if told else []


def _by_task(rows: Any) -> str:
    cells = [["task", "status", "time", "tries", "waited for you"]]
    for one in rows:
        time = "-" if one["seconds"] is None else spelled(one["seconds"])
        waited = spelled(one["waiting_seconds"]) if one["waiting_seconds"] else "-"
        cells.append([str(one["id"]), str(one["status"]), time, str(one["tries"]), waited])
    return table(cells)


_USED_BY: Final = {"by_task": "task", "by_agent": "agent", "by_program": "program", "by_outcome": "outcome"}


def _used_by(name: str, sums: Row) -> str:
    rows = [[name, "sessions", "time", "tokens", "money"]]
    for whose, one in sums.items():
        tokens = "-" if one["tokens"] is None else f"{one['tokens']:,}{' (estimate)' if one['estimated'] else ''}"
        money = "-" if one["money"] is None else f"${one['money']:.2f}"
        rows.append([one_line(whose, 100), str(one["sessions"]), spelled(one["seconds"]), tokens, money])
    return table(rows)
