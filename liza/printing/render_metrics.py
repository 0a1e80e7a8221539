"""Render metrics as text. Pure: values in, text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from liza.briefs.inbox import DeliveryStatistics
from liza.model.statuses import GoalStatus, TaskWord, task_word
from liza.printing.columns import align_columns, shorten_line
from liza.text.formats import count_noun, format_duration
from liza.usage.costs import ToolUsage, UsageBreakdown, UsageRow
from liza.view.metrics import SprintMetrics, TimedTask, UsageReport

MAX_TASKS, MAX_AGENTS = 6, 5
"""Rows of the tables that fit on a screen."""


def format_summary(metrics: SprintMetrics) -> str:
    """Return what fits on a screen: the sprint in sentences, the longest tasks, and the agents that used most."""
    lines = [
        f"{metrics.counts['merged']} of {count_noun(metrics.counts['total'], 'task')} merged",
        *_goal_time_lines(metrics),
        *_verdicts(metrics),
        *_total_usage(metrics.usage.by_outcome),
        *(f"warning: {warning}" for warning in metrics.warnings),
    ]
    tasks = sorted(metrics.tasks, key=lambda row: -(row.seconds or 0))
    agents = sorted(metrics.usage.by_agent.items(), key=lambda item: -item[1].seconds)
    tables = [
        _longest_tasks(tasks[:MAX_TASKS], metrics.usage.by_task),
        _usage_table("agent", dict(agents[:MAX_AGENTS])) if agents else "",
    ]
    lines += [f"\n{table}" for table in tables if table]
    return "\n".join([*lines, "", "all tasks, programs, models and days: liza metrics --all"])


def _total_usage(by_outcome: Mapping[str, UsageRow]) -> list[str]:
    """Return the usage of all sessions in a line; each session has one outcome."""
    rows = list(by_outcome.values())
    if not rows:
        return []
    sessions = count_noun(sum(row.sessions for row in rows), "session")
    parts = [f"{sessions} ran {format_duration(sum(row.seconds for row in rows))} in all"]
    tokens, money = (
        [getattr(row, name) for row in rows if getattr(row, name) is not None] for name in ("tokens", "money")
    )
    parts += [f"{sum(tokens):,} tokens"] if tokens else []
    parts.append(f"${sum(money):.2f}" if money else "cost not known")
    return [" · ".join(parts)]


def _longest_tasks(rows: Sequence[TimedTask], by_task: Mapping[str, UsageRow]) -> str:
    cells = [["task", "time", "claims", "waited for you", "money"]]
    for row in rows:
        if row.seconds is not None:
            money = by_task[row.id].money if row.id in by_task else None
            waited = format_duration(row.waiting_seconds) if row.waiting_seconds else ""
            cost = "" if money is None else f"${money:.2f}"
            time = format_duration(row.seconds)
            cells.append([shorten_line(row.id, 30), time, str(row.tries), waited, cost])
    return align_columns(_without_empty(cells)) if len(cells) > 1 else ""


def _without_empty(table: list[list[str]]) -> list[list[str]]:
    """Return the table, whose first row names the columns, without the columns that have nothing below their name."""
    columns = [number for number in range(len(table[0])) if any(row[number] for row in table[1:])]
    return [[row[number] for number in columns] for row in table]


def format_metrics(metrics: SprintMetrics) -> str:
    """Return the sprint in sentences, a table of tasks, and tables of usage and of tool calls."""
    lines = [
        _sprint_line(metrics),
        *_goal_time_lines(metrics),
        *_verdicts(metrics),
        *_messages(metrics.messages),
        *_anomalies(metrics),
        *_retrospective(metrics),
    ]
    lines += [f"warning: {warning}" for warning in metrics.warnings]
    if metrics.tasks:
        lines += ["", _task_table(metrics.tasks), *_archive_note(metrics.archived)]
    lines += [f"\n{table}" for table in _usage_tables(metrics.usage, (*_USAGE_TABLES, "by_tool"))]
    return "\n".join(lines)


def format_usage(report: UsageReport) -> str:
    """Return the tables of usage only."""
    return "\n\n".join(_usage_tables(report.usage, report.groups)) or "no session has reported this yet"


def _usage_tables(usage: UsageBreakdown, groups: Collection[str]) -> list[str]:
    sums = {name: getattr(usage, name) for name in _USAGE_TABLES if name in groups}
    tables = [_usage_table(_USAGE_TABLES[name], rows) for name, rows in sums.items() if rows]
    return [*tables, _tool_table(usage.by_tool)] if usage.by_tool and "by_tool" in groups else tables


def _sprint_line(metrics: SprintMetrics) -> str:
    counts: Counter[str] = Counter()
    for status, number in metrics.by_status.items():
        counts[task_word(status)] += number
    states = " · ".join(f"{counts[word]} {word}" for word in TaskWord if counts[word])
    merged = f"{metrics.sprint}: {metrics.counts['merged']} of {count_noun(metrics.counts['total'], 'task')} merged"
    return f"{merged} ({states})" if states else merged


def _goal_time_lines(metrics: SprintMetrics) -> list[str]:
    if metrics.goal_seconds is None:
        return []
    done = "took" if metrics.goal_status != GoalStatus.IN_PROGRESS else "has taken"
    waited = "nothing waited for you"
    if metrics.waiting_seconds:
        waited = f"something waited for you during {format_duration(metrics.waiting_seconds)} of it"
    return [f"the goal {done} {format_duration(metrics.goal_seconds)}; {waited}"]


def _verdicts(metrics: SprintMetrics) -> list[str]:
    lines = []
    if metrics.approval_rate is not None:
        counts = f"{metrics.counts['approved']} approved, {metrics.counts['rejected']} rejected"
        lines.append(f"reviews: {counts}")
    if metrics.untested_merges:
        lines.append(f"{count_noun(metrics.untested_merges, 'merge')} without a test")
    if metrics.undone_merges:
        lines.append(f"{count_noun(metrics.undone_merges, 'merge')} undone")
    return lines


def _messages(counts: DeliveryStatistics | None) -> list[str]:
    if counts is None or not (counts.attempted or counts.waiting):
        return []
    parts = [
        f"{counts.first_try} read at the first try",
        f"{counts.after_retry} later",
        f"{counts.escalated_to_brief} put into the brief",
        f"{counts.failed} not acknowledged",
        f"{counts.waiting} waiting",
    ]
    line = f"{count_noun(counts.attempted, 'message')} to agents: {', '.join(parts)}"
    if counts.median_seconds is not None:
        line += (
            f"; read after {counts.median_seconds:.1f} s (median), {counts.average_seconds:.1f} s (average), "
            f"in {counts.average_attempts:.1f} tries (average)"
        )
    return [line, *(f"warning: {path} cannot be read" for path in counts.unreadable)]


def _anomalies(metrics: SprintMetrics) -> list[str]:
    counts = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in metrics.anomalies.items())
    return [f"reported by agents: {counts}"] if counts else []


def _retrospective(metrics: SprintMetrics) -> list[str]:
    text = metrics.retrospective
    return ["retrospective:", *(f"  {line}" for line in text.splitlines())] if text else []


def _task_table(rows: Sequence[TimedTask]) -> str:
    cells = [["task", "state", "time", "claims", "waited for you"]]
    for row in rows:
        time = "" if row.seconds is None else format_duration(row.seconds)
        waited = format_duration(row.waiting_seconds) if row.waiting_seconds else ""
        cells.append([str(row.id), task_word(row.status), time, str(row.tries), waited])
    return align_columns(_without_empty(cells))


def _archive_note(archived: int) -> list[str]:
    number = count_noun(archived, "archived task")
    return [f"without {number}: liza task list --archived"] if archived else []


_USAGE_TABLES: Final = {
    "by_task": "task",
    "by_agent": "agent",
    "by_program": "program",
    "by_account": "account",
    "by_model": "model",
    "by_outcome": "outcome",
    "by_day": "day",
}


def _tool_table(totals: Mapping[str, ToolUsage]) -> str:
    table = [["tool", "calls", "failed", "time"]]
    for name, row in totals.items():
        table.append([shorten_line(name, 100), str(row.calls), str(row.failures), format_duration(row.seconds)])
    return align_columns(table)


def _usage_table(name: str, sums: Mapping[str, UsageRow]) -> str:
    table = [[name, "sessions", "time", "tokens", "money", "without a price"]]
    for owner, row in sums.items():
        tokens = "" if row.tokens is None else f"{row.tokens:,}{' (estimate)' if row.estimated else ''}"
        money = "" if row.money is None else f"${row.money:.2f}"
        counts = [str(row.sessions), format_duration(row.seconds)]
        table.append([shorten_line(owner, 100), *counts, tokens, money, str(row.unpriced or "")])
    return align_columns(_without_empty(table))
