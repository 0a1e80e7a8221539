"""Render the board and results of verbs as text. Pure: values in, text out; colours only if requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from liza.model.alarm_table import AlarmRow
from liza.model.paths import PERSON_PREFIX
from liza.model.setting_limits import PROMPTS
from liza.model.spending import Costs
from liza.model.statuses import AgentWord, GoalStatus, TaskWord, goal_word, task_word
from liza.printing.columns import align_columns, format_clock, format_local_time, paint, shorten_line
from liza.printing.columns import shorten_program as program_of
from liza.text import formats
from liza.text.formats import count_noun, format_duration
from liza.view.rules.structs import AgentLine, Picture, TaskRow

Row = Mapping[str, Any]

WORD_COLOURS: Final[Mapping[str, str]] = {
    TaskWord.MERGED: "green",
    TaskWord.WORKING: "cyan",
    TaskWord.IN_REVIEW: "blue",
    TaskWord.TO_FIX: "yellow",
    TaskWord.ASKS: "red",
    TaskWord.TO_DO: "plain",
    TaskWord.GIVEN_UP: "dim",
}
_AGENT_WORD_COLOURS: Final = {AgentWord.WAITS_FOR_YOU: "red", AgentWord.STUCK: "red", AgentWord.OFF: "dim"}
MAX_REPORTS: Final = 5  # discoveries, and anomalies, in a status


_AGENT_COLOURS: Final = ("cyan", "green", "yellow", "blue")


def agent_colour(agent: str) -> str:
    """Return the colour of an agent; it never changes."""
    return _AGENT_COLOURS[sum(agent.encode()) % len(_AGENT_COLOURS)]


def format_feed_start(agent: str, when: datetime, colour: bool) -> str:
    """Return the start of a line of `liza up`: the local time of day, and the agent in its colour if one is named."""
    time = paint(f"{when.astimezone():%H:%M:%S}", "dim", colour)
    return f"{time}  {paint(f'{agent:<16}', agent_colour(agent), colour) if agent else ''}"


def format_status(picture: Picture, colour: bool) -> str:
    """Return the status as text.

    Order: goal, what waits, counts and cost in one line; what waits for a person, with one command each; tasks; agents;
    other alarms.
    """
    goal = paint(shorten_line(picture.goal, 70), "bold", colour)
    parts = [f"{goal}   {_format_counts(picture, colour)}    {picture.costs.text}"]
    parts += [*goal_end_lines(picture), *_decision_lines(picture)]
    if picture.up or picture.is_off:
        parts.append(f"the crew is off{f': {picture.up}' if picture.up else ''}")
    if picture.outdated_proof:
        parts.append(f"tests: {picture.outdated_proof}; it is renewed when the crew is idle: liza doctor --tests")
    parts += [paint(text, "yellow", colour) for text in picture.limits]
    parts += [picture.server_failure] if picture.server_failure else []
    parts += [paint(format_signal(name, reason), "yellow", colour) for name, reason in picture.signals.items()]
    if picture.waits:
        parts += ["", *(format_alarm(alarm, colour) for alarm in picture.waits)]
    if picture.tasks or picture.archived:
        parts += [""] + [format_task_list(picture.tasks, colour)] * bool(picture.tasks)
        if picture.archived:
            parts.append(f"{count_noun(picture.archived, 'closed task')} in .liza/archive: liza task show ID")
    else:
        parts += ["", "no tasks yet: liza up wakes a planner; or: liza task add --help"]
    if picture.agents and not picture.is_off:
        parts += ["", format_agents(picture.agents, colour)]
    if picture.news:
        parts += ["", *(format_alarm(alarm, colour, "yellow") for alarm in picture.news)]
    reports = _report_lines(picture)
    if reports:
        parts += ["", *reports]
    return "\n".join(parts)


def format_short(picture: Picture) -> str:
    """Return what waits, the merged tasks of all, and the cost, in a few characters: `3 wait · 2/14 · $11`."""
    merged = picture.counts.get(TaskWord.MERGED, 0)
    parts = [f"{len(picture.waits)} wait", f"{merged}/{picture.total}", _short_cost(picture.costs)]
    return " · ".join(filter(None, parts))


def _short_cost(costs: Costs) -> str:
    """Return the cost, with ``+`` if sessions told none; ``$?`` if it is unknown, empty before the first session."""
    if costs.money is None:
        return "$?" if costs.sessions or costs.unreadable else ""
    return f"${costs.money:.{0 if costs.money >= 10 else 2}f}{'+' if costs.unpriced else ''}"


def _report_lines(picture: Picture) -> list[str]:
    """Return one line for each of the first open discoveries and the newest anomalies, and the command to close one."""
    discoveries, anomalies = picture.discoveries, picture.anomalies
    rows = (*discoveries[:MAX_REPORTS], *anomalies[-MAX_REPORTS:])
    if not rows:
        return []
    counts = [count_noun(len(discoveries), "discovery", "discoveries")] * bool(discoveries)
    counts += [count_noun(len(anomalies), "anomaly", "anomalies")] * bool(anomalies)
    lines = [f"{' and '.join(counts)} open: liza report resolve {rows[0].id} WHY"]
    return [
        *lines,
        *(f"    {row.id} {row.kind}, by {row.by or 'unknown'}: {shorten_line(row.text, 120)}" for row in rows),
    ]


def _decision_lines(picture: Picture) -> list[str]:
    """Return the last decision of a planner or edit of the goal."""
    note = picture.decision
    if note is None:
        return []
    when = "" if note.timestamp is None else f", {format_local_time(note.timestamp)}"
    who = note.event.removeprefix(PERSON_PREFIX) or "unknown"
    return [f"last decision ({who}{when}): {shorten_line(note.summary, 120)}"]


def goal_end_lines(picture: Picture) -> list[str]:
    """If no task is open: the goal's status, how far integration is ahead, and the next command."""
    is_ended = picture.goal_status != GoalStatus.IN_PROGRESS
    if picture.ahead is None:
        return [f"the goal is {goal_word(picture.goal_status)}"] if is_ended else []
    state = f"the goal is {goal_word(picture.goal_status)}" if is_ended else "no task is open"
    return [f"{state}; {picture.ahead.summary}: {picture.ahead.next}"]


def format_signal(name: str, reason: str) -> str:
    """Return a signal with its reason. The hint is left out if the reason has it already."""
    line = f"{name} is set: {shorten_line(reason, 200)}" if reason else f"{name} is set"
    has_hint = any(hint in reason for hint in ("liza resume", "liza breaker resolve"))
    return line if has_hint else f"{line}: liza resume"


def _format_counts(picture: Picture, colour: bool) -> str:
    """Return how much waits for a person, and the tasks by word."""
    waits = len(picture.waits)
    parts = [paint(f"{waits} {'waits' if waits == 1 else 'wait'} for you", "red", colour)] * bool(waits)
    for word, number in picture.counts.items():
        stopped = f" ({picture.stopped} stopped)" if word is TaskWord.WORKING and picture.stopped else ""
        parts.append(f"{number} {word}{stopped}")
    return " · ".join(parts if picture.counts else [*parts, "no tasks"])


def format_task_list(tasks: Sequence[TaskRow], colour: bool) -> str:
    """Return one line per task: id, word, owner, tries, and the reason or the text."""
    if not tasks:
        return "no tasks"
    return align_columns(
        [
            [
                row.task.id,
                paint(row.word, WORD_COLOURS[row.word], colour),
                row.owner,
                f"try {row.task.iteration}" if row.task.iteration else "",
                shorten_line(row.reason, 70),
            ]
            for row in tasks
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
                paint_task_word(task["status"], colour),
                _task_outcome(task),
            ]
            for task in tasks
        ]
    )


def _task_outcome(task: Row) -> str:
    if task["error"]:
        return f"its entry cannot be read: {task['error']}: liza validate"
    if task["undone"] and not task["superseded_by"]:
        return str(task["undone"])
    if task["merge_commit"] and not task["undone"]:
        return f"merged as {task['merge_commit'][:10]}"
    return f"superseded by {', '.join(task['superseded_by'])}" if task["superseded_by"] else ""


def paint_task_word(status: str | None, colour: bool) -> str:
    """Return the word for a status of a task, in its colour."""
    word = task_word(status or "")
    return paint(word, WORD_COLOURS.get(word, "plain"), colour)


def format_agents(lines: Sequence[AgentLine], colour: bool) -> str:
    """Return one line per agent: id, word and its duration, task, program, and the reason."""
    if not lines:
        return "no agents yet: liza up"
    return align_columns(
        [
            [
                line.row.id,
                _agent_state(line, colour),
                line.row.current_task or "",
                program_of(line.row.program),
                paint(line.reason, "dim", colour),
            ]
            for line in lines
        ]
    )


def _agent_state(line: AgentLine, colour: bool) -> str:
    """Return the word of an agent, with the time until which it waits, or for how long it does what it does."""
    row, text = line.row, str(line.word)
    if line.word is AgentWord.WAITS_UNTIL and row.until is not None:
        text = f"{text} {format_clock(row.until)}"
    elif line.word in (AgentWord.WORKING, AgentWord.WAITS_FOR_YOU) and row.seconds is not None:
        text = f"{text} {format_duration(row.seconds)}"
    context = f", context {row.context}%" if row.context is not None else ""
    return paint(text, _AGENT_WORD_COLOURS.get(line.word, "plain"), colour) + context


def format_activity(row: Row) -> str:
    """Return an agent's activity and its duration, such as ``working 4 min``; empty without an activity."""
    if not row.get("doing"):
        return ""
    who = f"{row['who']} " if row.get("who") else ""
    return f"{who}{row['doing']} {format_duration(row['seconds'])}"


def format_alarm(alarm: AlarmRow, colour: bool, mark: str = "red") -> str:
    """Return an alarm: the message, how long it has waited, and the command for it."""
    since = f" (for {format_duration(alarm.seconds)})" if alarm.seconds is not None else ""
    return f"{paint('!', mark, colour)} {alarm.message}{since}\n    {paint(alarm.next, 'bold', colour)}"


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
    """Return one line per program: name, version, what can be chosen, an install hint, and the results of a trial."""
    rows = []
    for row in result["programs"]:
        rows.append([str(row["name"]), _version(row), _describe_choices(row), _program_hint(row)])
        rows += [
            ["", f"{'ok' if proof['ok'] else 'NO'}  {proof['what']}", "", proof["said"]]
            for proof in row.get("proofs", ())
        ]
    no_programs = "no program is installed: liza programs list says how"
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
            *formats.format_table(f"programs.{formats.format_key(program['name'])}", fields),
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
    "chosen_model",
    "is_run",
    "takes_model",
    "way",
)


def _describe_choices(row: Row) -> str:
    """Return what a person can choose besides the name, and what is not as with the other programs."""
    name = row["name"]
    if not row["command"]:
        return f"your own: {name}:COMMAND"
    texts = [
        f"model: {name}@MODEL" if row["takes_model"] else "no choice of a model",
        *(f"over ACP: {other}" for other in row["way"]["others"]),
        *(["log not readable"] if row["logs"] == "not read" else []),
        *([] if row["is_run"] else ["not run"]),
    ]
    return ", ".join(texts)


def _way(row: Row) -> str:
    """Return how the sessions of a program without a terminal are driven, and whether their output is known."""
    return " or ".join([row["way"]["name"], *row["way"]["others"]]) + f", log {row['logs']}"


def _version(row: Row) -> str:
    if not row["command"]:
        return "takes a command"
    return str(row["version"] or "installed") if row["installed"] else "not installed"


def _confinement(row: Row) -> str:
    """Return what confines the sessions of a program that was tried."""
    if row["boxed"]:
        return "confined"
    return "nothing confines it" if row["permissions"] == PROMPTS and not row["confines"] else str(row["permissions"])


def _program_hint(row: Row) -> str:
    if row.get("problems") or (row.get("remarks") and "seconds" not in row):
        return "; ".join((*row["problems"], *row["remarks"]))
    if "seconds" in row:
        return f"works, {_confinement(row)}, in {row['seconds']:g} s"
    return str(row["install"]) if row["command"] and not row["installed"] else ""
