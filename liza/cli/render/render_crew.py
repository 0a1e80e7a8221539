"""Render the board and results of verbs as text. Pure: values in, text out; colours only if requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from liza.cli.render.columns import align_columns, paint
from liza.cli.render.text_formats import format_local_time, shorten_line
from liza.cli.render.text_formats import shorten_program as program_of
from liza.crew.commits_ahead import CommitsAhead
from liza.rules.alarm_kinds import CONTAINED_NOTICES, AlarmKind
from liza.rules.formatting import toml_text
from liza.rules.formatting.counts import count_noun
from liza.rules.formatting.times import format_duration
from liza.rules.model import AlignmentNote
from liza.rules.project.test_proof import NO_SOURCE
from liza.rules.statuses import AgentStatus, GoalStatus

Row = Mapping[str, Any]

STATUS_COLOURS: Final = {
    "DRAFT": "dim",
    "UNCLAIMED": "plain",
    "CLAIMED": "cyan",
    "READY_FOR_REVIEW": "blue",
    "APPROVED": "blue",
    "REJECTED": "yellow",
    "BLOCKED": "red",
    "INTEGRATION_FAILED": "red",
    "MERGED": "green",
    "SUPERSEDED": "dim",
    "ABANDONED": "dim",
}
_CLAIMED_OFFLINE: Final = "CLAIMED, and its agent offline"
_WAITING_LABEL: Final = "tasks wait for you"
MAX_REPORTS: Final = 5  # discoveries, and anomalies, in a status
_STATUS_GROUPS: Final = (
    ("merged", ("MERGED",)),
    ("working", ("CLAIMED",)),
    ("in review", ("READY_FOR_REVIEW", "APPROVED")),
    ("to fix", ("REJECTED", "INTEGRATION_FAILED")),
    ("to do", ("UNCLAIMED",)),
    ("stopped", (_CLAIMED_OFFLINE,)),
    (_WAITING_LABEL, ("BLOCKED", "DRAFT")),
    ("given up", ("SUPERSEDED", "ABANDONED")),
)


_AGENT_COLOURS: Final = ("cyan", "green", "yellow", "blue")


def agent_colour(agent: str) -> str:
    """Return the colour of an agent; it never changes."""
    return _AGENT_COLOURS[sum(agent.encode()) % len(_AGENT_COLOURS)]


def format_feed_start(agent: str, when: datetime, colour: bool) -> str:
    """Return the start of a line of `liza up`: the local time of day, and the agent in its colour if one is named."""
    time = paint(f"{when.astimezone():%H:%M:%S}", "dim", colour)
    return f"{time}  {paint(f'{agent:<16}', agent_colour(agent), colour) if agent else ''}"


def format_status(summary: Row, colour: bool) -> str:
    """Return the status as text.

    Order: goal, counts and cost in one line; what waits for a person, with one command each; tasks; agents; other
    alarms.
    """
    goal = paint(shorten_line(summary["goal"]["description"], 70), "bold", colour)
    parts = [f"{goal}   {_group_counts(summary)}    {_cost(summary['cost'])}"]
    parts += [*_goal_end_lines(summary), *_decision_lines(summary)]
    doubt = summary["tests"]["not_proved"]
    reported_by = (AlarmKind.TESTS_ELSEWHERE, AlarmKind.TESTS_GREEN)
    is_reported = doubt == NO_SOURCE or any(alarm["kind"] in reported_by for alarm in summary["alerts"])
    if doubt and not is_reported:
        parts.append(f"tests not proved: {shorten_line(doubt, 200)}: liza doctor --tests")
    if outdated := summary["tests"].get("outdated"):
        parts.append(f"tests: {outdated}; it is renewed when the crew is idle: liza doctor --tests")
    if summary.get("up"):
        parts.append(f"no supervisor runs, so no task goes on by itself: {summary['up']}")
    parts += _server_lines(summary)
    for name in summary["signals"]:
        parts.append(paint(_signal_line(name, summary["reasons"][name]), "yellow", colour))
    waiting = summary.get("waiting", ())
    if waiting:
        parts += ["", *(format_alarm(alarm, colour) for alarm in waiting)]
    archived = summary.get("archived", {}).get("total", 0)
    if summary["tasks"] or archived:
        parts += [""] + [format_task_list(summary["tasks"], colour)] * bool(summary["tasks"])
        parts += [f"{count_noun(archived, 'closed task')} in .liza/archive: liza task show ID"] * bool(archived)
    else:
        parts += ["", "no tasks yet: liza up wakes a planner; or: liza task add --help"]
    if summary["agents"]:
        parts += ["", format_agents(summary["agents"], colour)]
    waiting_keys = {(alarm["kind"], alarm["about"], alarm["next"]) for alarm in waiting}
    # A failed merge of an offline coder is among `waiting` already.
    contained = {(CONTAINED_NOTICES.get(alarm["kind"]), alarm["about"]) for alarm in waiting}
    alarms = [
        alarm for alarm in summary["alerts"] if (alarm["kind"], alarm["about"], alarm["next"]) not in waiting_keys
    ]
    alarms = [alarm for alarm in alarms if (alarm["kind"], alarm["about"]) not in contained]
    if alarms:
        parts += ["", *(format_alarm(alarm, colour, "yellow") for alarm in alarms)]
    reports = _report_lines(summary)
    if reports:
        parts += ["", *reports]
    return "\n".join(parts)


def _report_lines(summary: Row) -> list[str]:
    """Return one line for each of the first open discoveries and the newest anomalies, and the command to close one."""
    reports = summary.get("reports", {"discoveries": (), "anomalies": ()})
    discoveries, anomalies = reports["discoveries"], reports["anomalies"]
    rows = [(entry["id"], entry["urgency"], entry["by"], entry["description"]) for entry in discoveries[:MAX_REPORTS]]
    rows += [
        (entry["id"], entry["type"], entry["reporter"], str(entry["details"].get("text", "")))
        for entry in anomalies[-MAX_REPORTS:]
    ]
    if not rows:
        return []
    counts = [count_noun(len(discoveries), "discovery", "discoveries")] * bool(discoveries)
    counts += [count_noun(len(anomalies), "anomaly", "anomalies")] * bool(anomalies)
    lines = [f"{' and '.join(counts)} open: liza report resolve {rows[0][0]} WHY"]
    return [
        *lines,
        *(f"    {name} {kind}, by {by or 'unknown'}: {shorten_line(text, 120)}" for name, kind, by, text in rows),
    ]


def _server_lines(summary: Row) -> list[str]:
    """Say where the worker API is served, or why it is not although a crew runs that it was started for."""
    server = summary.get("server")
    if server is None or not server["expected"]:
        return []
    if server["running"]:
        since = server["since"]
        when = "" if since is None else f" since {since.astimezone():%H:%M}"
        return [f"worker API: .liza/run/api.sock and 127.0.0.1:{server['port']}{when}"]
    failure = server["failure"]
    if failure is None:
        return ["the worker API is not served now, work continues: less .liza/logs/server.log"]
    times = count_noun(failure["count"], "start")
    return [f"the worker API is not served, {times} failed, work continues: {failure['reason']}: {failure['next']}"]


def _decision_lines(summary: Row) -> list[str]:
    """Return the last decision of a planner or edit of the goal."""
    notes: Sequence[AlignmentNote] = summary["goal"]["alignment_history"]
    if not notes:
        return []
    note = notes[-1]
    when = "" if note.timestamp is None else f", {format_local_time(note.timestamp)}"
    return [f"last decision ({note.event or 'unknown'}{when}): {shorten_line(note.summary, 120)}"]


def _goal_end_lines(summary: Row) -> list[str]:
    """If no task is open: the goal's status, how far integration is ahead, and the next command."""
    ended = summary["goal"]["status"] != GoalStatus.IN_PROGRESS
    ahead = summary.get("ahead")
    if ahead is None:
        return [f"the goal is {summary['goal']['status']}"] if ended else []
    commits_ahead = CommitsAhead(**ahead)
    state = f"the goal is {summary['goal']['status']}" if ended else "no task is open"
    return [f"{state}; {commits_ahead.summary}: {commits_ahead.next}"]


def _signal_line(name: str, reason: str) -> str:
    """Return a signal with its reason. The hint is left out if the reason has it already."""
    line = f"{name} is set: {shorten_line(reason, 200)}" if reason else f"{name} is set"
    has_hint = any(hint in reason for hint in ("liza resume", "liza breaker resolve"))
    return line if has_hint else f"{line}: liza resume"


def _group_counts(summary: Row) -> str:
    offline = {agent["id"] for agent in summary["agents"] if agent["status"] == AgentStatus.OFFLINE}
    counts = Counter(
        _CLAIMED_OFFLINE if _is_stopped(task, offline) else str(task["status"]) for task in summary["tasks"]
    )
    counts.update(summary.get("archived", {}).get("by_status", {}))
    groups = [(sum(counts[status] for status in group), name) for name, group in _STATUS_GROUPS]
    return " · ".join(f"{number} {_group_label(name, number)}" for number, name in groups if number) or "no tasks"


def _group_label(name: str, number: int) -> str:
    return "task waits for you" if name == _WAITING_LABEL and number == 1 else name


def _is_stopped(task: Row, offline: Collection[str]) -> bool:
    """Whether a task is claimed by an agent that is offline."""
    return str(task["status"]) == "CLAIMED" and task["assigned_to"] in offline


def _cost(cost: Row) -> str:
    return f"cost unknown: {cost['unreadable']}" if cost.get("unreadable") else str(cost["said"])


def format_task_list(tasks: Sequence[Row], colour: bool) -> str:
    """Return one line per task: id, status, owner, tries, text."""
    if not tasks:
        return "no tasks"
    return align_columns(
        [
            [
                str(task["id"]),
                paint(str(task["status"]), STATUS_COLOURS.get(str(task["status"]), "plain"), colour),
                _task_owner(task),
                _tries(task),
                _task_text(task),
            ]
            for task in tasks
        ]
    )


def format_archive_note(total: int) -> str:
    """Return how many of the listed kind of tasks are in the archive, with the command that lists them."""
    verb = "is" if total == 1 else "are"
    return f"{count_noun(total, 'closed task')} {verb} in the archive: liza task list --archived"


def format_archived_tasks(tasks: Sequence[Row], colour: bool) -> str:
    """Return one line per task of the archive: id, status, what became of it."""
    if not tasks:
        return "no such tasks in the archive"
    return align_columns(
        [
            [
                str(task["id"]),
                paint(str(task["status"]), STATUS_COLOURS.get(str(task["status"]), "plain"), colour),
                _task_outcome(task),
            ]
            for task in tasks
        ]
    )


def _task_outcome(task: Row) -> str:
    if task["error"]:
        return f"its entry cannot be read: {task['error']}: liza validate"
    if task["merge_commit"]:
        return f"merged as {task['merge_commit'][:10]}"
    return f"superseded by {', '.join(task['superseded_by'])}" if task["superseded_by"] else ""


def _task_owner(task: Row) -> str:
    if task["reviewing_by"]:
        return f"{task['reviewing_by']} reviews"
    return str(task["assigned_to"] or "")


def _tries(task: Row) -> str:
    return f"try {task['iteration']}" if task["iteration"] else ""


def _task_text(task: Row) -> str:
    if str(task["status"]) == "BLOCKED":
        return f"asks: {shorten_line(' / '.join(task['blocked_questions']) or task['blocked_reason'] or '', 70)}"
    if str(task["status"]) == "REJECTED":
        return f"rejected: {shorten_line(task['rejection_reason'] or '', 70)}"
    if str(task["status"]) == "DRAFT" and task.get("missing"):
        return f"draft: {shorten_line('; '.join(task['missing']), 70)}"
    if str(task["status"]) == "UNCLAIMED" and task.get("waits_for"):
        return shorten_line(f"needs {', '.join(task['waits_for'])}: {task['description']}", 70)
    return shorten_line(task["description"], 70)


def format_agents(rows: Sequence[Row], colour: bool) -> str:
    """Return one line per agent: id, activity and its duration, task, program, and why it is idle."""
    if not rows:
        return "no agents yet: liza up"
    return align_columns(
        [
            [
                str(row["id"]),
                (format_activity(row) or str(row["status"]))
                + _format_state(row)
                + _format_source(row)
                + (", unmeasured" if row.get("unmeasured") else ""),
                str(row["current_task"] or ""),
                program_of(row["program"]),
                paint(str(row["why"] or (row.get("evidence") if _format_state(row) else "") or ""), "dim", colour),
            ]
            for row in rows
        ]
    )


def _format_state(row: Row) -> str:
    """Return the operating state with a comma before it if it needs attention; else empty."""
    return f", {row['state']}" if row.get("state") in ("stalled", "zombie", "stuck") else ""


def _format_source(row: Row) -> str:
    """Return the phase of a turn and who reports it; ``observed`` without a report, empty without a session."""
    if row.get("phase"):
        return f", {row['phase']} (reported by {row.get('reported_by')})"
    return ", observed" if row.get("state_source") == "observed" else ""


def format_activity(row: Row) -> str:
    """Return an agent's activity and its duration, such as ``working 4 min``; empty without an activity."""
    if not row.get("doing"):
        return ""
    who = f"{row['who']} " if row.get("who") else ""
    return f"{who}{row['doing']} {format_duration(row['seconds'])}"


def format_alarm(alarm: Row, colour: bool, mark: str = "red") -> str:
    """Return an alarm: the message, how long it has waited, and the command for it."""
    since = f" (for {format_duration(alarm['seconds'])})" if alarm.get("seconds") is not None else ""
    return f"{paint('!', mark, colour)} {alarm['message']}{since}\n    {paint(str(alarm['next']), 'bold', colour)}"


def format_validation(result: Row) -> str:
    """Return one line per violation and the next command, or a line that the board is valid."""
    lines = [_violation(violation) for violation in result["violations"]]
    lines += [f"warning: {warning}" for warning in result["warnings"]]
    checked = count_noun(result["tasks"] or 0, "task")
    if result["archived"]:
        checked += f" and {result['archived']:,} archived {'one' if result['archived'] == 1 else 'ones'}"
    lines.append(f"{result['path']}: {checked}, no violation" if result["valid"] else f"next: {result['next']}")
    return "\n".join(lines)


def _violation(violation: Row) -> str:
    if violation["field"] == "text":
        return str(violation["found"])
    return f"{violation['entry']}: {violation['field']} is {violation['found']}, wanted {violation['wanted']}"


def format_programs(result: Row) -> str:
    """Return one line per program: name, version, how it is driven, an install hint, and the results of a trial."""
    rows = []
    for row in result["programs"]:
        rows.append([str(row["name"]), _version(row), _way(row), _program_hint(row)])
        rows += [
            ["", f"{'ok' if proof['ok'] else 'NO'}  {proof['what']}", "", proof["said"]]
            for proof in row.get("proofs", ())
        ]
    no_programs = (
        "no program is installed: liza programs list says how; your own: liza programs check script:./agent.sh"
    )
    return "\n".join([align_columns(rows) or no_programs, *result["notices"]])


def format_program(program: Row) -> str:
    """Return one program: its version, its abilities, and the rest of its preset as TOML."""
    lines = [f"{program['name']}  {_version(program)}  {_program_hint(program)}".rstrip()]
    lines += [f"{name}  {program[name]}" for name in ("verified", "lacks") if program[name]]
    lines.append(f"driven  {_way(program)}: {program['way']['reason']}")
    rows = [[f"tier {ability['tier']}", ability["what"], ability["by"] or "no"] for ability in program["can"]]
    fields = {name: value for name, value in program.items() if name not in _PRINTED_FIELDS}
    return "\n".join(
        [
            *lines,
            "",
            align_columns(rows),
            "",
            *toml_text.format_table(f"programs.{toml_text.format_key(program['name'])}", fields),
        ]
    )


_PRINTED_FIELDS: Final = (
    "name",
    "logs",
    "version",
    "verified",
    "lacks",
    "can",
    "confines",
    "installed",
    "install",
    "way",
)


def _way(row: Row) -> str:
    """Return how the sessions of a program without a terminal are driven, and whether their output is known."""
    return " or ".join([row["way"]["name"], *row["way"]["others"]]) + f", log {row['logs']}"


def _version(row: Row) -> str:
    if not row["command"]:
        return "takes a command"
    return str(row["version"] or "installed") if row["installed"] else "not installed"


def _program_hint(row: Row) -> str:
    if row.get("problems"):
        return "; ".join(row["problems"])
    if "seconds" in row:
        permissions = (
            "nothing confines it" if row["permissions"] == "confined" and not row["confines"] else row["permissions"]
        )
        return f"works, {permissions}, in {row['seconds']:g} s"
    return str(row["install"]) if row["command"] and not row["installed"] else ""
