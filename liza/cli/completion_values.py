"""Values that the shell completes: ids, names and words, from the files of the crew.

Nothing here takes a lock, repairs, writes or runs git: the board is read as it is. What cannot be read is not offered,
so that a shell never shows an error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from liza.alarms.rules import troubleshooting
from liza.board.text.document import load_state
from liza.briefs.rules.message_rules import PRIORITIES
from liza.cli.app import list_parts
from liza.config.rules.setting_meanings import MEANINGS, WRITTEN_BY_LIZA
from liza.config.rules.setting_values import setting_choices, setting_names
from liza.crew.crew import find_root
from liza.crew.layout import find_texts
from liza.git.slots_directory import read_record
from liza.model.errors import LizaError
from liza.model.model import FINAL_STATUSES, URGENCIES, State, Status
from liza.model.paths import ROLES, Paths, role_of, sort_agents
from liza.model.setting_limits import VALUES as PERMISSIONS
from liza.model.spending import USAGE_GROUPS
from liza.model.statuses import ANOMALY_TYPES, TaskWord, task_word
from liza.programs.presets.preset_table import load_presets
from liza.programs.rules.program_spec import Transport
from liza.tasks.rules.up_command import next_coder


class Typed(NamedTuple):
    """What is on the command line: the ``word`` to complete, and the words before it, without options."""

    word: str
    before: Sequence[str]


class Completion(NamedTuple):
    """A value, and what it is."""

    value: str
    help: str = ""


Complete = Callable[[Typed], Iterable[Completion]]
_CLOSED: Final = FINAL_STATUSES
_OPEN: Final = frozenset(Status) - _CLOSED
_RETURNED: Final = frozenset({Status.REJECTED, Status.INTEGRATION_FAILED})


def read_paths() -> Paths | None:
    """Return the paths of the crew here; None without a crew."""
    with suppress(LizaError, OSError):
        root = os.environ.get("LIZA_ROOT")
        top = Path(root) if root else find_root(Path.cwd())
        return None if top is None else Paths(top)
    return None


def read_state() -> State | None:
    """Return the present board, or the last copy of one on a server; None without a crew, or if it cannot be read."""
    paths = read_paths()
    with suppress(LizaError, OSError, ValueError):
        if paths is not None:
            path = paths.board_copy if paths.board_address.exists() else paths.state
            return load_state(path.read_text(encoding="utf-8"))
    return None


def tasks(*statuses: Status) -> Complete:
    """Return the tasks of the board with one of these statuses; all without one."""

    def complete(typed: Typed) -> Iterable[Completion]:
        state = read_state()
        for task in () if state is None else state.tasks:
            if (not statuses or task.status in statuses) and task.id not in typed.before:
                yield Completion(task.id, f"{task_word(task.status)}: {task.description}")

    return complete


def agents(typed: Typed) -> Iterable[Completion]:
    """Return the agents of the board."""
    state = read_state()
    records = {} if state is None else state.agents
    for name in sort_agents(records):
        if name not in typed.before:
            yield Completion(name, records[name].status.lower())


def startable_agents(typed: Typed) -> Iterable[Completion]:
    """Return the agents of the board, the first one of each role that it lacks, and one further coder."""
    yield from agents(typed)
    state = read_state()
    if state is not None:
        lacking = [f"{role}-1" for role in ROLES if not any(role_of(name) == role for name in state.agents)]
        for name in dict.fromkeys((*lacking, next_coder(state))):
            if name not in typed.before:
                yield Completion(name, "new")


def programs(typed: Typed) -> Iterable[Completion]:
    """Return the installed programs; all if none is."""
    paths = read_paths() or Paths(Path.cwd())
    with suppress(LizaError, OSError):
        rows = load_presets(paths).rows
        installed = [name for name, row in rows.items() if not row.command or shutil.which(row.command)]
        for name in installed if any(rows[name].command for name in installed) else rows:
            yield Completion(name if rows[name].command else f"{name}:", rows[name].command)


def all_programs(typed: Typed) -> Iterable[Completion]:
    """Return the names of all programs."""
    with suppress(LizaError, OSError):
        rows = load_presets(read_paths() or Paths(Path.cwd())).rows
        yield from (Completion(name, row.command) for name, row in rows.items())


def program_choices(typed: Typed) -> Iterable[Completion]:
    """Return what `--program` takes: a program, ``ROLE=PROGRAM``, ``AGENT=PROGRAM``, each also with a transport."""
    who, equals, spec = typed.word.rpartition("=")
    named = [row.value for row in programs(typed)]
    if not equals:
        state = read_state()
        names = ["planner", "coder", "reviewer", *(() if state is None else sort_agents(state.agents))]
        yield from (Completion(f"{name}=", "only for it") for name in names)
    for name in named:
        yield Completion(f"{who}{equals}{name}")
        if spec.startswith(f"{name}:"):
            yield from (Completion(f"{who}{equals}{name}:{transport}") for transport in Transport)


def alarms(typed: Typed) -> Iterable[Completion]:
    """Return the names that `liza explain` explains."""
    if not typed.before:
        with suppress(LizaError, OSError):
            page = (find_texts("specs") / troubleshooting.PAGE).read_text(encoding="utf-8")
            entries = troubleshooting.parse_entries(page)
            yield from (Completion(entry.name, entry.meaning) for entry in entries if " " not in entry.name)


def settings(typed: Typed) -> Iterable[Completion]:
    """Return the names of the settings."""
    return (Completion(name, MEANINGS[name].text) for name in setting_names())


def own_settings(typed: Typed) -> Iterable[Completion]:
    """Return the names of the settings that a person changes."""
    return (row for row in settings(typed) if not row.value.startswith(WRITTEN_BY_LIZA))


def setting_words(typed: Typed) -> Iterable[Completion]:
    """Return the values of the setting that was typed before, if they are words."""
    name = typed.before[-1] if typed.before else ""
    return map(Completion, setting_choices(name))


def epics(typed: Typed) -> Iterable[Completion]:
    """Return the epics of the board."""
    state = read_state()
    names = dict.fromkeys(task.epic for task in (() if state is None else state.tasks) if task.epic)
    return map(Completion, names)


def slots(typed: Typed) -> Iterable[Completion]:
    """Return the slots: the worktrees that exist."""
    paths = read_paths()
    with suppress(OSError):
        record = None if paths is None else read_record(paths)
        names = () if record is None else (path.name for path in record.directory.iterdir())
        yield from map(Completion, sorted(name for name in names if name[:1] == "s" and name[1:].isdecimal()))


def commands(typed: Typed) -> Iterable[Completion]:
    """Return the commands, or the parts of the one that was typed before."""
    return map(Completion, list_parts(typed.before))


def words(*values: str) -> Complete:
    """Return fixed words."""
    return lambda typed: map(Completion, values)


def lists(complete: Complete) -> Complete:
    """Return values for a list with commas: of its last part, behind the parts that are typed."""

    def with_former(typed: Typed) -> Iterable[Completion]:
        former, comma, last = typed.word.rpartition(",")
        for row in complete(Typed(last, [*typed.before, *former.split(",")])):
            if row.value not in former.split(","):
                yield Completion(f"{former}{comma}{row.value}", row.help)

    return with_former


def either(*parts: Complete) -> Complete:
    """Return the values of several kinds."""
    return lambda typed: (row for part in parts for row in part(typed))


def first(complete: Complete) -> Complete:
    """Return values for the first word only."""
    return lambda typed: () if typed.before else complete(typed)


BY_NAME: Final[dict[str, Complete]] = {
    "task_id": tasks(),
    "task": tasks(),
    "agent": agents,
    "agents": agents,
    "program": program_choices,
    "depends": lists(tasks(*_OPEN, Status.MERGED)),
    "by": lists(tasks()),
    "epic": epics,
    "slot": slots,
    "review": words("agent", "human"),
    "role": words(*ROLES),
    "permissions": words(*PERMISSIONS),
    "urgency": words(*URGENCIES),
}
"""By the name of a parameter, for all commands that have it."""

BY_COMMAND: Final[dict[tuple[str, str], Complete]] = {
    ("up", "agents"): startable_agents,
    ("liza-agent", "agent"): startable_agents,
    ("run", "program"): programs,
    ("programs check", "name"): programs,
    ("programs show", "name"): all_programs,
    ("hook", "program"): all_programs,
    ("task list", "status"): lists(words(*(word.replace(" ", "-") for word in TaskWord))),
    ("task edit", "task_id"): tasks(*(_OPEN - {Status.CLAIMED})),
    ("task unblock", "task_id"): tasks(Status.BLOCKED),
    ("task supersede", "task_id"): tasks(*_OPEN),
    ("task drop", "task_id"): tasks(*_OPEN),
    ("task release", "task_id"): tasks(Status.CLAIMED),
    ("answer", "task_id"): tasks(Status.BLOCKED),
    ("claim", "task_id"): tasks(Status.UNCLAIMED, Status.READY_FOR_REVIEW, *_RETURNED),
    ("merge", "tasks"): tasks(Status.APPROVED),
    ("push", "tasks"): tasks(*_OPEN),
    ("queue move", "task_id"): tasks(Status.APPROVED),
    ("queue hold", "task_id"): tasks(*_OPEN),
    ("queue release", "task_id"): tasks(*_OPEN),
    ("queue retry", "task_id"): tasks(Status.APPROVED, *_RETURNED),
    ("verdict", "task"): tasks(Status.READY_FOR_REVIEW),
    ("verdict", "word"): words("approve", "reject"),
    ("undo", "task_id"): tasks(Status.MERGED),
    ("logs", "agent"): either(agents, tasks()),
    ("note", "to"): either(agents, tasks(*_OPEN)),
    ("note", "priority"): words(*PRIORITIES),
    ("confine", "words"): first(either(tasks(*_OPEN), agents)),
    ("metrics", "by"): lists(words(*USAGE_GROUPS)),
    ("explain", "words"): alarms,
    ("config get", "name"): settings,
    ("config set", "name"): own_settings,
    ("config set", "value"): setting_words,
    ("epics restore", "name"): epics,
    ("epics accept", "name"): epics,
    ("report", "kind"): words("discovery", "resolve", *ANOMALY_TYPES),
    ("edit", "what"): words("board", "goal"),
    ("watch", "notify"): words("desktop", "env:", "file:"),
    ("help", "words"): commands,
}
"""By command and parameter, where only some values fit."""

FILES: Final = frozenset({
    ("task add", "file"), ("task add", "spec"), ("task edit", "spec"), ("task supersede", "file"), ("init", "spec"),
    ("init", "copy"), ("init", "share"), ("start", "copy"), ("agents", "import_"), ("handoff", "file"),
    ("edit", "kept"), ("guard test", "path"), ("lock", "command"), ("run", "args"),
})  # fmt: skip
"""Parameters whose value is a path; so is each whose type is one."""
