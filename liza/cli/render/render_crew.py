"""Board and answers as text for people. Pure: values in, text out; colours only when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from liza.cli.render.columns import align_columns, paint
from liza.cli.render.text_formats import shorten_line
from liza.cli.render.text_formats import shorten_program as program_of
from liza.crew.commits_ahead import CommitsAhead
from liza.rules import toml_text
from liza.rules.durations import format_duration
from liza.rules.project.test_proof import NO_SOURCE

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
_WAITING_LABEL: Final = "wait for you"
_STATUS_GROUPS: Final = (
    ("merged", ("MERGED",)),
    ("working", ("CLAIMED",)),
    ("in review", ("READY_FOR_REVIEW", "APPROVED")),
    ("to mend", ("REJECTED", "INTEGRATION_FAILED")),
    ("to do", ("UNCLAIMED",)),
    ("stopped", (_CLAIMED_OFFLINE,)),
    (_WAITING_LABEL, ("BLOCKED", "DRAFT")),
    ("given up", ("SUPERSEDED", "ABANDONED")),
)


_AGENT_COLOURS: Final = ("cyan", "green", "yellow", "blue")


def agent_colour(agent: str) -> str:
    """A colour for an agent, always the same."""
    return _AGENT_COLOURS[sum(agent.encode()) % len(_AGENT_COLOURS)]


def format_status(found: Row, colour: bool) -> str:
    """The board at a glance: goal, counts and cost in one line; what waits for a person, each with its one command;
    tasks, agents, and what a person should know of."""
    goal = paint(shorten_line(found["goal"]["description"], 70), "bold", colour)
    parts = [f"{goal}   {_group_counts(found)}    {_cost(found['cost'])}"]
    parts += _goal_end_lines(found)
    doubt = found["tests"]["not_proved"]
    told = doubt == NO_SOURCE or any(alarm["kind"] == "tests_elsewhere" for alarm in found["alerts"])
    if doubt and not told:
        parts.append(f"tests not proved: {shorten_line(doubt, 200)}: liza doctor --tests")
    for name in found["signals"]:
        parts.append(paint(_signal_line(name, found["reasons"][name]), "yellow", colour))
    waiting = found.get("waiting", ())
    if waiting:
        parts += ["", *(format_alarm(alarm, colour) for alarm in waiting)]
    if found["tasks"]:
        parts += ["", format_task_list(found["tasks"], colour)]
    else:
        parts += ["", "no tasks yet: liza up wakes a planner; or: liza task add --help"]
    if found["agents"]:
        parts += ["", format_agents(found["agents"], colour)]
    known = {(one["kind"], one["about"], one["next"]) for one in waiting}
    # A merge that failed, and whose coder is offline, is told above.
    above = {(one["kind"].removeprefix("orphaned_"), one["about"]) for one in waiting if "orphaned_" in one["kind"]}
    rest = [one for one in found["alerts"] if (one["kind"], one["about"], one["next"]) not in known]
    rest = [one for one in rest if (one["kind"], one["about"]) not in above]
    if rest:
        parts += ["", *(format_alarm(alarm, colour, "yellow") for alarm in rest)]
    return "\n".join(parts)


def _goal_end_lines(found: Row) -> list[str]:
    """Where nothing is left to do: how the goal stands, how far integration is ahead, and what comes next."""
    ended = found["goal"]["status"] != "IN_PROGRESS"
    ahead = found.get("ahead")
    if ahead is None:
        return [f"the goal is {found['goal']['status']}"] if ended else []
    there = CommitsAhead(**ahead)
    how = f"the goal is {found['goal']['status']}" if ended else "no task is open"
    return [f"{how}; {there.summary}: {there.next}"]


def _signal_line(name: str, why: str) -> str:
    """A signal with its reason, which may name the way on already."""
    said = f"{name} stands: {shorten_line(why, 200)}" if why else f"{name} stands"
    return said if "liza resume" in said else f"{said}: liza resume"


def _group_counts(found: Row) -> str:
    offline = {agent["id"] for agent in found["agents"] if agent["status"] == "OFFLINE"}
    counts = Counter(_CLAIMED_OFFLINE if _is_stopped(task, offline) else str(task["status"]) for task in found["tasks"])
    groups = [(sum(counts[status] for status in group), name) for name, group in _STATUS_GROUPS]
    return " · ".join(f"{number} {_group_label(name, number)}" for number, name in groups if number) or "no tasks"


def _group_label(name: str, number: int) -> str:
    return "waits for you" if name == _WAITING_LABEL and number == 1 else name


def _is_stopped(task: Row, offline: Collection[str]) -> bool:
    """Whether nobody is at work on a task that is somebody's."""
    return str(task["status"]) == "CLAIMED" and task["assigned_to"] in offline


def _cost(cost: Row) -> str:
    return f"cost not known: {cost['unreadable']}" if cost.get("unreadable") else str(cost["said"])


def format_task_list(tasks: Sequence[Row], colour: bool) -> str:
    """A line a task: id, status, who, tries, what."""
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
    """A line an agent: id, what it does and for how long, what it holds, and why it is not at work."""
    if not rows:
        return "no agents yet: liza up"
    return align_columns(
        [
            [
                str(row["id"]),
                format_activity(row) or str(row["status"]),
                str(row["current_task"] or ""),
                program_of(row["program"]),
                paint(str(row["why"] or ""), "dim", colour),
            ]
            for row in rows
        ]
    )


def format_activity(row: Row) -> str:
    """What an agent does, and for how long: ``working 4 min``; empty where it does nothing."""
    if not row.get("doing"):
        return ""
    who = f"{row['who']} " if row.get("who") else ""
    return f"{who}{row['doing']} {format_duration(row['seconds'])}"


def format_alarm(alarm: Row, colour: bool, mark: str = "red") -> str:
    """One thing that needs a person, how long it has waited, and the command for it."""
    since = f" (for {format_duration(alarm['seconds'])})" if alarm.get("seconds") is not None else ""
    return f"{paint('!', mark, colour)} {alarm['message']}{since}\n    {paint(str(alarm['next']), 'bold', colour)}"


def format_validation(found: Row) -> str:
    """Every violation in a line and what to do then, or that there is none."""
    lines = [_violation(one) for one in found["violations"]]
    lines += [f"warning: {warning}" for warning in found["warnings"]]
    lines.append(
        f"{found['path']}: {found['tasks']} tasks, no violation" if found["valid"] else f"next: {found['next']}"
    )
    return "\n".join(lines)


def _violation(one: Row) -> str:
    if one["field"] == "text":
        return str(one["found"])
    return f"{one['entry']}: {one['field']} is {one['found']}, wanted {one['wanted']}"


def format_programs(found: Row) -> str:
    """A line a program: name, version or that it is missing, and what to do then; and what it showed when tried."""
    rows = []
    for row in found["programs"]:
        rows.append([str(row["name"]), _version(row), _program_hint(row)])
        rows += [["", f"{'ok' if one['ok'] else 'NO'}  {one['what']}", one["said"]] for one in row.get("proofs", ())]
    nothing = "no program is installed: liza programs list says how; your own: liza programs check script:./agent.sh"
    return "\n".join([align_columns(rows) or nothing, *found["notices"]])


def format_program(found: Row) -> str:
    """What one program is, what can be done with it, and the rest of its row, as a file can have it."""
    lines = [f"{found['name']}  {_version(found)}  {_program_hint(found)}".rstrip()]
    lines += [f"{name}  {found[name]}" for name in ("verified", "lacks") if found[name]]
    rows = [[f"tier {one['tier']}", one["what"], one["by"] or "no"] for one in found["can"]]
    rest = {name: value for name, value in found.items() if name not in _PRINTED_FIELDS}
    return "\n".join(
        [
            *lines,
            "",
            align_columns(rows),
            "",
            *toml_text.format_table(f"programs.{toml_text.format_key(found['name'])}", rest),
        ]
    )


_PRINTED_FIELDS: Final = ("name", "version", "verified", "lacks", "can", "confines", "installed", "install")


def _version(row: Row) -> str:
    if not row["command"]:
        return "takes a command"
    return str(row["version"] or "installed") if row["installed"] else "not installed"


def _program_hint(row: Row) -> str:
    if row.get("problems"):
        return "; ".join(row["problems"])
    if "seconds" in row:
        may = "nothing confines it" if row["permissions"] == "confined" and not row["confines"] else row["permissions"]
        return f"works, {may}, in {row['seconds']:g} s"
    return str(row["install"]) if row["command"] and not row["installed"] else ""
