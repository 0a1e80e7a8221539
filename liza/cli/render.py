"""Board and answers as text for people. Pure: values in, text out; colours only when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from liza.cli.columns import paint, table
from liza.rules import toml_text

Row = Mapping[str, Any]

_STATUS_COLOURS: Final = {
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
_STOPPED: Final = "CLAIMED, and its agent offline"
_GROUPS: Final = (
    ("merged", ("MERGED",)),
    ("working", ("CLAIMED",)),
    ("in review", ("READY_FOR_REVIEW", "APPROVED")),
    ("to mend", ("REJECTED", "INTEGRATION_FAILED")),
    ("to do", ("UNCLAIMED",)),
    ("stopped", (_STOPPED,)),
    ("waits for you", ("BLOCKED", "DRAFT")),
    ("given up", ("SUPERSEDED", "ABANDONED")),
)


def status(found: Row, colour: bool) -> str:
    """The board at a glance: goal, counts and cost in one line, then tasks, agents, and what needs a person."""
    goal = paint(_line(found["goal"]["description"], 70), "bold", colour)
    parts = [f"{goal}   {_counts(found)}    {_cost(found['cost'])}"]
    if found["goal"]["status"] != "IN_PROGRESS":
        parts.append(f"the goal is {found['goal']['status']}")
    if found["tests"]["not_proved"] and not any(alarm["kind"] == "tests_elsewhere" for alarm in found["alerts"]):
        parts.append(f"tests not proved: {_line(found['tests']['not_proved'], 200)}: liza doctor --tests")
    for name in found["signals"]:
        parts.append(paint(_standing(name, found["reasons"][name]), "yellow", colour))
    if found["tasks"]:
        parts += ["", task_list(found["tasks"], colour)]
    else:
        parts += ["", "no tasks yet: liza up wakes a planner; or: liza task add --help"]
    if found["agents"]:
        parts += ["", agents(found["agents"], colour)]
    if found["alerts"]:
        parts += ["", *(alarm_line(alarm, colour) for alarm in found["alerts"])]
    return "\n".join(parts)


def _standing(name: str, why: str) -> str:
    """A signal with its reason, which may name the way on already."""
    said = f"{name} stands: {_line(why, 200)}" if why else f"{name} stands"
    return said if "liza resume" in said else f"{said}: liza resume"


def _counts(found: Row) -> str:
    offline = {agent["id"] for agent in found["agents"] if agent["status"] == "OFFLINE"}
    counts = Counter(_STOPPED if _is_stopped(task, offline) else str(task["status"]) for task in found["tasks"])
    groups = [(sum(counts[status] for status in group), name) for name, group in _GROUPS]
    return " · ".join(f"{number} {name}" for number, name in groups if number) or "no tasks"


def _is_stopped(task: Row, offline: Collection[str]) -> bool:
    """Whether nobody is at work on a task that is somebody's."""
    return str(task["status"]) == "CLAIMED" and task["assigned_to"] in offline


def _cost(cost: Row) -> str:
    if cost.get("unreadable"):
        return f"cost not known: {cost['unreadable']}"
    limit = cost["budget"].get("money_per_sprint")
    tokens = _known(f"{cost['tokens']:,} tokens", cost, "silent") + ", " if cost["tokens"] else ""
    money = None if cost["money"] is None else _known(f"${cost['money']:.2f}", cost, "unpriced")
    spent = money or f"{tokens}cost not known"
    return f"{spent}, limit ${limit:.2f}" if limit is not None else f"{spent}, no limit"


def _known(sum_of_those: str, cost: Row, missing: str) -> str:
    """A sum, and how many sessions are not in it as they did not tell."""
    if not cost[missing]:
        return sum_of_those
    return f"at least {sum_of_those} ({cost[missing]} of {cost['sessions']} sessions told none)"


def task_list(tasks: Sequence[Row], colour: bool) -> str:
    """A line a task: id, status, who, tries, what."""
    if not tasks:
        return "no tasks"
    return table(
        [
            [
                str(task["id"]),
                paint(str(task["status"]), _STATUS_COLOURS.get(str(task["status"]), "plain"), colour),
                _who(task),
                _tries(task),
                _what(task),
            ]
            for task in tasks
        ]
    )


def _who(task: Row) -> str:
    if task["reviewing_by"]:
        return f"{task['reviewing_by']} reviews"
    return str(task["assigned_to"] or "")


def _tries(task: Row) -> str:
    return f"try {task['iteration']}" if task["iteration"] else ""


def _what(task: Row) -> str:
    if str(task["status"]) == "BLOCKED":
        return f"asks: {_line(' / '.join(task['blocked_questions']) or task['blocked_reason'] or '', 70)}"
    if str(task["status"]) == "REJECTED":
        return f"rejected: {_line(task['rejection_reason'] or '', 70)}"
    if str(task["status"]) == "DRAFT" and task.get("missing"):
        return f"draft: {_line('; '.join(task['missing']), 70)}"
    return _line(task["description"], 70)


def agents(rows: Sequence[Row], colour: bool) -> str:
    """A line an agent: id, status, what it holds or why it is idle."""
    if not rows:
        return "no agents yet: liza up"
    return table(
        [
            [
                str(row["id"]),
                str(row["status"]),
                str(row["current_task"] or ""),
                str(row["program"] or ""),
                paint(str(row["why"] or ""), "dim", colour),
            ]
            for row in rows
        ]
    )


def agent(row: Row, colour: bool) -> str:
    """One agent: its fields, then what it did, newest first."""
    head = fields({name: value for name, value in row.items() if name not in ("work", "notes")})
    notes = [f"note: {note}" for note in row["notes"]]
    work = table([_done(line) for line in row["work"][:30]])
    return "\n".join([head, *notes, *(["", work] if work else [])])


def _done(line: Row) -> list[str]:
    named = [str(line[name] or "") for name in ("run", "task", "event")]
    return [_time(line["time"]), *named, _line(line["detail"], 60)]


def alarm_line(alarm: Row, colour: bool) -> str:
    """One thing that needs a person, with the command for it."""
    return f"{paint('!', 'red', colour)} {alarm['message']}\n    {paint(str(alarm['next']), 'bold', colour)}"


def task(found: Row, colour: bool) -> str:
    """A task: what is asked, where it stands, what was said, what happened."""
    state = paint(str(found["status"]), _STATUS_COLOURS.get(str(found["status"]), "plain"), colour)
    lines = [f"{paint(str(found['id']), 'bold', colour)}  {state}", ""]
    lines += _indented("", found["description"] or "(no description)")
    for name, label in _TEXTS:
        if found.get(name):
            lines += _indented(label, _said(found[name]))
    facts = {name: found[name] for name in _FACTS if found[name] not in (None, "", (), [], False, 0)}
    lines += ["", fields(facts)]
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
    ("blocked_reason", "blocked"),
    ("blocked_questions", "asks"),
    ("answers", "answered"),
    ("attempted", "attempted"),
)
_FACTS: Final = (
    "spec_ref",
    "priority",
    "depends_on",
    "waits_for",
    "assigned_to",
    "run",
    "branch",
    "directory",
    "iteration",
    "lease_expires",
    "review_commit",
    "reviewing_by",
    "review_cycles_total",
    "approved_by",
    "merge_commit",
    "tested",
    "failed_by",
    "superseded_by",
    "supersedes",
)


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "\n".join(f"{one.question} → {one.answer}" if hasattr(one, "question") else str(one) for one in value)


def _event(one: Any) -> list[str]:
    return [_time(one.time), one.event, one.run or one.agent or "", (one.commit or "")[:10], _line(one.detail, 70)]


def _indented(label: str, text: str) -> list[str]:
    rows = text.splitlines() or [""]
    return [f"{label:<12}{row}" if number == 0 else f"{'':<12}{row}" for number, row in enumerate(rows)]


def history(entries: Iterable[Row], colour: bool) -> str:
    """A line a revision, and its patch where there is one."""
    lines = []
    for entry in entries:
        lines.append(f"{entry['revision']:>6}  {_time(entry['time'])}  {entry['subject']}")
        lines += [paint(f"        ! {alert}", "red", colour) for alert in entry["alerts"]]
        if entry["patch"]:
            lines += [_patch(row, colour) for row in entry["patch"].splitlines()]
    return "\n".join(lines)


def diff(found: Row, colour: bool) -> str:
    """A patch as git shows it, then the files that git does not know yet."""
    lines = [_patch(row, colour) for row in found["diff"].splitlines()]
    lines += [paint(f"untracked: {name}", "yellow", colour) for name in found["untracked"]]
    return "\n".join(lines) or f"{found['task']} changes nothing yet"


def _patch(row: str, colour: bool) -> str:
    if row.startswith(("+++", "---", "diff ", "index ")):
        return paint(row, "bold", colour)
    for start, name in (("+", "green"), ("-", "red"), ("@@", "cyan")):
        if row.startswith(start):
            return paint(row, name, colour)
    return row


def validation(found: Row) -> str:
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


def programs(found: Row) -> str:
    """A line a program: name, version or that it is missing, and what to do then; and what it showed when tried."""
    rows = []
    for row in found["programs"]:
        rows.append([str(row["name"]), _version(row), _remedy(row)])
        rows += [["", f"{'ok' if one['ok'] else 'NO'}  {one['what']}", one["said"]] for one in row.get("proofs", ())]
    nothing = "no program is installed: liza programs list says how; your own: liza programs check script:./agent.sh"
    return "\n".join([table(rows) or nothing, *found["notices"]])


def program(found: Row) -> str:
    """What one program is, what can be done with it, and the rest of its row, as a file can have it."""
    lines = [f"{found['name']}  {_version(found)}  {_remedy(found)}".rstrip()]
    lines += [f"{name}  {found[name]}" for name in ("verified", "lacks") if found[name]]
    rows = [[f"tier {one['tier']}", one["what"], one["by"] or "no"] for one in found["can"]]
    rest = {name: value for name, value in found.items() if name not in _SAID_ABOVE}
    return "\n".join([*lines, "", table(rows), "", *toml_text.lines(f"programs.{toml_text.key(found['name'])}", rest)])


_SAID_ABOVE: Final = ("name", "version", "verified", "lacks", "can", "confines", "installed", "install")


def _version(row: Row) -> str:
    if not row["command"]:
        return "takes a command"
    return str(row["version"] or "installed") if row["installed"] else "not installed"


def _remedy(row: Row) -> str:
    if row.get("problems"):
        return "; ".join(row["problems"])
    if "seconds" in row:
        may = "nothing confines it" if row["permissions"] == "confined" and not row["confines"] else row["permissions"]
        return f"works, {may}, in {row['seconds']:g} s"
    return str(row["install"]) if row["command"] and not row["installed"] else ""


def metrics(found: Row) -> str:
    """The counts, one a line, then a table of what was used by each task, agent, program and outcome."""
    plain = {name: value for name, value in found.items() if name not in ("warnings", *_USED_BY)}
    tables = [f"\n{_used_by(name, found[name])}" for name in _USED_BY if found[name]]
    return "\n".join([fields(plain), *(f"warning: {warning}" for warning in found["warnings"]), *tables])


_USED_BY: Final = ("by_task", "by_agent", "by_program", "by_outcome")


def _used_by(name: str, sums: Row) -> str:
    rows = [[name, "sessions", "seconds", "tokens", "money"]]
    for whose, one in sums.items():
        tokens = "-" if one["tokens"] is None else f"{one['tokens']:,}"
        money = "-" if one["money"] is None else f"${one['money']:.2f}"
        rows.append([_line(whose, 100), str(one["sessions"]), f"{one['seconds']:,}", tokens, money])
    return table(rows)


def fields(found: Row) -> str:
    """Names and values, one a line; lists and mappings on one line each."""
    return table([[name, _value(value)] for name, value in found.items()])


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(one)}" for name, one in value.items()) or "-"
    if isinstance(value, list | tuple | frozenset):
        return ", ".join(_value(one) for one in value) or "-"
    return str(value)


def _time(when: datetime | str) -> str:
    return when if isinstance(when, str) else f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _line(text: str | None, most: int) -> str:
    one = " ".join((text or "").split())
    return one if len(one) <= most else one[: most - 1] + "…"
