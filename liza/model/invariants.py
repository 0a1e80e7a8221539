"""Invariants of a stored board. A violation names the entry, the field, the value found and the value expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from liza.model import gates, setting_limits, statuses, targets
from liza.model.configuration import BreakerSettings, Config, NotifySettings
from liza.model.derived import work_by_agent
from liza.model.errors import UsageError
from liza.model.gates import gate_problems
from liza.model.model import (
    FINAL_STATUSES,
    URGENCIES,
    Agent,
    Anomaly,
    ArchiveSummary,
    CircuitBreaker,
    State,
    Status,
    Task,
    TrackedRequest,
    Violation,
)
from liza.model.paths import ROLES, check_task_id, parse_agent_id, role_of, split_run
from liza.model.statuses import SEVERITIES, AgentStatus, GoalStatus, Pattern, SprintStatus
from liza.text.formats import did_you_mean

S = Status
_RUN_NUMBER = re.compile("[0-9]{1,9}")
_SURROGATE = re.compile("[\ud800-\udfff]")
GOAL_STATUSES = tuple(GoalStatus)
SPRINT_STATUSES = tuple(SprintStatus)
AGENT_STATUSES = tuple(AgentStatus)
REQUEST_STATES = ("OPEN", "CLOSED", "MERGED")
MERGE_CLEAN_VALUES = ("always", "after_red", "never")
_WORKED_ON = frozenset({S.CLAIMED, S.READY_FOR_REVIEW, S.APPROVED, S.REJECTED, S.INTEGRATION_FAILED})


def check_entry(section: str, key: str, entry: Any, state: State) -> tuple[Violation, ...]:
    """Return the violations of one entry alone (a Task, an Agent, …)."""
    rule = _RULES.get(section)
    return tuple(rule(key, entry)) if rule else ()


def check_board(state: State) -> tuple[Violation, ...]:
    """Return all violations on the board."""
    violations: list[Violation] = [
        *check_entry("goal", "goal", state.goal, state),
        *check_entry("sprint", "sprint", state.sprint, state),
        *check_entry("config", "config", state.config, state),
        *check_entry("archived", "archived", state.archived, state),
        *check_entry("pull_request", "pull_request", state.pull_request, state),
    ]
    for task in state.tasks:
        violations += check_entry("tasks", task.id, task, state)
    for name, agent in state.agents.items():
        violations += check_entry("agents", name, agent, state)
    for index, anomaly in enumerate(state.anomalies):
        violations += check_entry("anomalies", f"anomalies[{index}]", anomaly, state)
    for discovery in state.discovered:
        violations += check_entry("discovered", discovery.id, discovery, state)
    violations += check_entry("circuit_breaker", "circuit_breaker", state.circuit_breaker, state)
    return (*violations, *_working_on_nothing(state), *check_relations(state))


def _violation(entry: str, field: str, actual: object, expected: str) -> Violation:
    return Violation(entry=entry, field=field, actual=str(actual), expected=expected)


def _working_on_nothing(state: State) -> Iterator[Violation]:
    """Yield a violation for each agent whose status says that it works, and that holds nothing.

    A change by Liza computes the status again, so this is not checked for each transaction: an edit from outside, or
    of the tasks of an agent, may leave such a status until the next one.
    """
    busy = work_by_agent(state)
    for name, agent in state.agents.items():
        if agent.status in (AgentStatus.WORKING, AgentStatus.REVIEWING) and name not in busy:
            expected = "another status, because it holds no task, review or planning"
            yield _violation(name, "status", agent.status, expected)


def check_relations(state: State) -> tuple[Violation, ...]:
    """Return violations between entries: duplicate ids, dependencies, cycles, a slot or agent in two claims."""
    return (*_duplicate_ids(state), *_dependencies(state), *_cycles(state), *_double_claims(state))


def find_cycle(state: State, start: str) -> tuple[str, ...]:
    """Return the ids of a dependency cycle through ``start``; empty without a cycle."""
    wanted = targets.waits_for(state.tasks)
    path: list[str] = []
    stack: list[tuple[str, int]] = [(start, 0)]
    seen: set[str] = set()
    while stack:
        current, depth = stack.pop()
        del path[depth:]
        path.append(current)
        for needed in wanted.get(current, ()):
            if needed == start:
                return (*path, start)
            if needed not in seen:
                seen.add(needed)
                stack.append((needed, depth + 1))
    return ()


def _task(key: str, task: Task) -> Iterator[Violation]:
    yield from _id_form(key, task.id)
    for name in ("description", "done_when", "scope", "spec_ref"):
        if not getattr(task, name).isascii() and _SURROGATE.search(getattr(task, name)):
            yield _violation(key, name, "a surrogate without its pair", "text that UTF-8 can encode")
    if not 1 <= task.priority <= 9:
        yield _violation(key, "priority", task.priority, "1 to 9")
    for name in (
        "iteration",
        "idle_sessions",
        "reviews_without_verdict",
        "review_cycles_current",
        "review_cycles_total",
    ):
        if getattr(task, name) < 0:
            yield _violation(key, name, getattr(task, name), "0 or more")
    if task.epic is not None or task.target is not None:
        yield from _target(key, task)
    for status, names in _NEEDED.items():
        if task.status is status:
            yield from _missing_fields(key, task, names if task.submission is None else _without_coder(names))
    if task.status not in (S.DRAFT, S.ABANDONED, S.SUPERSEDED):
        yield from _missing_fields(key, task, ("description", "done_when", "scope", "spec_ref"))
    if task.reviewing_by is not None:
        yield from _review(key, task)
    if task.status in FINAL_STATUSES and task.worktree is not None:
        yield _violation(key, "worktree", task.worktree, f"none, because it is {task.status}")
    if task.merging is not None and task.status is not S.APPROVED:
        yield _violation(key, "merging", task.merging.candidate, f"none, because it is {task.status}")
    if task.set_aside is not None and task.status is not S.APPROVED:
        yield _violation(key, "set_aside", task.set_aside.kind, f"none, because it is {task.status}")
    if task.undo is not None and (task.merge_commit is None or task.status not in _UNDONE):
        expected = f"none, because it is {task.status}{'' if task.merge_commit else ' without a merge'}"
        yield _violation(key, "undo", task.undo.commit, expected)
    if task.approved_by is not None and task.approved_by == task.assigned_to:
        yield _violation(key, "approved_by", task.approved_by, "an agent other than its author")
    if task.reservation is not None and task.status not in (S.UNCLAIMED, S.REJECTED, S.INTEGRATION_FAILED, S.CLAIMED):
        yield _violation(key, "reservation", task.reservation.run, f"none, because it is {task.status}")


_UNDONE = frozenset({S.MERGED, S.ABANDONED, S.SUPERSEDED})
"""Statuses of a task whose merge is being undone, was undone, or was undone and replaced."""
_NEEDED: dict[Status, tuple[str, ...]] = {
    S.CLAIMED: ("assigned_to", "worktree", "base_commit", "lease_expires"),
    S.READY_FOR_REVIEW: ("assigned_to", "worktree", "base_commit", "review_commit"),
    S.APPROVED: ("assigned_to", "review_commit", "approved_by"),
    S.REJECTED: ("assigned_to", "worktree", "review_commit", "rejection_reason"),
    S.INTEGRATION_FAILED: ("assigned_to", "worktree", "review_commit"),
    S.BLOCKED: ("blocked_reason", "blocked_questions"),
    S.MERGED: ("merge_commit", "approved_by", "review_commit"),
    S.SUPERSEDED: ("superseded_by", "rescope_reason"),
}


_OF_A_CODER = frozenset({"assigned_to", "worktree"})


def _without_coder(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields that submitted work needs, which its author did without a coder and a slot of the crew."""
    return tuple(name for name in names if name not in _OF_A_CODER)


def _target(key: str, task: Task) -> Iterator[Violation]:
    if task.epic is not None:
        yield from _id_form(key, task.epic, "epic")
    if task.target is not None and (task.epic is not None or not targets.is_target_name(task.target)):
        expected = "the name of a branch, without an epic"
        yield _violation(key, "target", repr(task.target), expected)


def _missing_fields(key: str, task: Task, names: tuple[str, ...]) -> Iterator[Violation]:
    for name in names:
        if not getattr(task, name):
            yield _violation(key, name, "missing", f"a value, because it is {task.status}")


def _review(key: str, task: Task) -> Iterator[Violation]:
    if task.status is not S.READY_FOR_REVIEW:
        yield _violation(key, "reviewing_by", task.reviewing_by, f"none, because it is {task.status}")
    if task.reviewing_by == task.assigned_to:
        yield _violation(key, "reviewing_by", task.reviewing_by, "an agent other than its author")
    for name in ("review_run", "review_lease_expires"):
        if getattr(task, name) is None:
            yield _violation(key, name, "missing", "a value, because it is under review")


def _id_form(key: str, value: str, field: str = "id") -> Iterator[Violation]:
    try:
        check_task_id(value)
    except UsageError as wrong:
        yield _violation(key, field, repr(value), wrong.message)


def _agent(key: str, agent: Agent) -> Iterator[Violation]:
    try:
        name = parse_agent_id(key)
    except UsageError as wrong:
        yield _violation(key, "id", repr(key), wrong.message)
        return
    if agent.role.replace("_", "-") != role_of(name):
        yield _violation(key, "role", agent.role, f"{role_of(name)}, one of {', '.join(ROLES)}")
    if agent.status not in AGENT_STATUSES:
        yield _violation(key, "status", agent.status, _allowed(agent.status, AGENT_STATUSES))
    if agent.runs < 0:
        yield _violation(key, "runs", agent.runs, "0 or more")


def _allowed(actual: str, words: Iterable[str]) -> str:
    """Return what is expected of a word: the allowed words, and the one that is meant if one is similar."""
    # Every command loads this module, and few boards have a wrong word.

    names = [str(word) for word in words]
    return f"one of {', '.join(names)}{did_you_mean(str(actual), names)}"


def _one_of(field: str, allowed: tuple[str, ...]) -> Callable[[str, Any], Iterator[Violation]]:
    def rule(key: str, entry: Any) -> Iterator[Violation]:
        actual = getattr(entry, field)
        if actual not in allowed:
            yield _violation(key, field, actual, _allowed(actual, allowed))

    return rule


def _notify(key: str, config: Config) -> Iterator[Violation]:
    """A target or a link never appears in a violation: it may have a credential."""
    for label, problem in setting_limits.board_problems(config.notify.targets):
        actual = f"{label} ({problem})"
        yield _violation(key, "notify.targets", actual, "desktop, env:NAME or file:PATH")
    quiet = config.notify.quiet
    if quiet is not None and setting_limits.parse_hours(quiet) is None:
        yield _violation(key, "notify.quiet", quiet[:40], "hours such as 22:00-07:00")
    link = config.notify.link
    if link is not None and not setting_limits.is_link(link):
        most = f"at most {setting_limits.MAX_LINK} characters"
        wanted = f"an address such as https://box.example: http or https, without a user name or a query, {most}"
        yield _violation(key, "notify.link", setting_limits.target_label(link), wanted)


def _config(key: str, config: Config) -> Iterator[Violation]:
    for name, number, expected in setting_limits.find_excesses(config):
        yield _violation(key, name, number, expected)
    if not targets.is_branch_name(config.integration_branch):
        actual = repr(config.integration_branch)
        yield _violation(key, "integration_branch", actual, "a name of a branch")
    if config.breaker != BreakerSettings():
        yield from _breaker_settings(key, config.breaker)
    if config.permissions is not None and config.permissions not in setting_limits.VALUES:
        wanted = _allowed(config.permissions, setting_limits.VALUES)
        yield _violation(key, "permissions", config.permissions, wanted)
    if config.merge_clean not in MERGE_CLEAN_VALUES:
        wanted = _allowed(config.merge_clean, MERGE_CLEAN_VALUES)
        yield _violation(key, "merge_clean", config.merge_clean, wanted)
    if config.gate_environment not in ((), Config().gate_environment):
        for name in gates.find_refused(config.gate_environment):
            yield _violation(key, "gate_environment", name, gates.EXPECTED)
    for name in ("planning_rounds", "archive_after"):
        if getattr(config, name) < 0:
            yield _violation(key, name, getattr(config, name), "0 or more")
    if config.session_max is not None and config.session_max < 1:
        yield _violation(key, "session_max", config.session_max, "1 or more, or null")
    if config.gates:
        for problem in gate_problems(config):
            yield _violation(key, "gates", problem, "gates that can be run")
    if not 1 <= config.proof_runs <= 10:
        yield _violation(key, "proof_runs", config.proof_runs, "1 to 10")
    for name in ("batch", "parallel"):
        if getattr(config.queue, name) < 1:
            actual = str(getattr(config.queue, name))
            yield _violation(key, f"queue.{name}", actual, "1 or more")
    if config.queue.retries < 0:
        yield _violation(key, "queue.retries", config.queue.retries, "0 or more")
    hours = config.work_hours
    if hours is not None and setting_limits.parse_hours(hours) is None:
        yield _violation(key, "work_hours", hours[:40], "hours such as 08:00-20:00, or mon-fri 08:00-20:00, or null")
    if config.notify != NotifySettings():
        yield from _notify(key, config)
    for path in config.shared:
        if not path.startswith(("/", "~/")) or ".." in path.split("/"):
            yield _violation(key, "shared", repr(path), "paths that begin with / or ~/")
    for name in config.slots.__struct_fields__:
        most = getattr(config.slots, name)
        if most is not None and most < 1:
            yield _violation(key, f"slots.{name}", most, "1 or more, or no such line")
    for name in config.budget.__struct_fields__:
        limit = getattr(config.budget, name)
        # "not limit > 0" instead of "limit <= 0", because NaN must be refused too.
        if limit is not None and not limit > 0:
            yield _violation(key, f"budget.{name}", limit, "more than 0, or no such line")


def _breaker_settings(key: str, settings: BreakerSettings) -> Iterator[Violation]:
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        # "not value >= 0" instead of "value < 0", because NaN must be refused too.
        if name not in ("severity", "window") and not value >= 0:
            yield _violation(key, f"breaker.{name}", value, "0 or more")
    for name in ("similarity", "integration_failures"):
        if getattr(settings, name) > 100:
            actual = str(getattr(settings, name))
            yield _violation(key, f"breaker.{name}", actual, "0 to 100")
    for pattern in settings.severity.keys() - set(Pattern):
        yield _violation(key, "breaker.severity", pattern, _allowed(pattern, Pattern))
    for pattern, severity in settings.severity.items():
        if severity not in SEVERITIES:
            expected = _allowed(severity, SEVERITIES)
            yield _violation(key, f"breaker.severity.{pattern}", severity, expected)


def _archived(key: str, archived: ArchiveSummary) -> Iterator[Violation]:
    for name, number in (*archived.counts.items(), *archived.verdicts.items()):
        if number < 0:
            yield _violation(key, name, number, "0 or more")
    for name in archived.counts.keys() - {status.value for status in FINAL_STATUSES}:
        yield _violation(key, "counts", name, "only statuses of closed tasks")
    wanted = f"{S.MERGED} or {S.ABANDONED}"
    for name, outcome in archived.outcomes.items():
        if outcome not in (S.MERGED, S.ABANDONED):
            yield _violation(key, f"outcomes.{name}", outcome, wanted)


def _pull_request(key: str, request: TrackedRequest) -> Iterator[Violation]:
    if request.number < 0:
        yield _violation(key, "number", request.number, "0 or more")
    yield from _one_of("state", REQUEST_STATES)(key, request)
    keys = [taken.key for taken in request.taken]
    if len(set(keys)) < len(keys):
        double = next(name for name in keys if keys.count(name) > 1)
        yield _violation(key, "taken", f"twice {double}", "each key once")


def _circuit_breaker(key: str, breaker: CircuitBreaker) -> Iterator[Violation]:
    yield from _one_of("status", ("OK", "TRIGGERED"))(key, breaker)
    for trip in breaker.history:
        if trip.severity not in SEVERITIES:
            expected = _allowed(trip.severity, SEVERITIES)
            yield _violation(key, f"history.{trip.trigger}", trip.severity, expected)


def _anomaly(key: str, anomaly: Anomaly) -> Iterator[Violation]:
    if anomaly.type not in statuses.ANOMALY_TYPES:
        wanted = _allowed(anomaly.type, statuses.ANOMALY_TYPES)
        yield _violation(key, "type", anomaly.type, wanted)
    for name in statuses.missing_details(anomaly):
        expected = f"a value, because it is a {anomaly.type}"
        yield _violation(key, f"details.{name}", "missing", expected)


_RULES: dict[str, Callable[[str, Any], Iterator[Violation]]] = {
    "anomalies": _anomaly,
    "discovered": _one_of("urgency", URGENCIES),
    "tasks": _task,
    "agents": _agent,
    "goal": _one_of("status", GOAL_STATUSES),
    "sprint": _one_of("status", SPRINT_STATUSES),
    "circuit_breaker": _circuit_breaker,
    "config": _config,
    "archived": _archived,
    "pull_request": _pull_request,
}


def _duplicate_ids(state: State) -> Iterator[Violation]:
    seen: set[str] = set()
    for task in state.tasks:
        if task.id in seen:
            yield _violation(task.id, "id", "a duplicate", "one task with that id")
        seen.add(task.id)


def _dependencies(state: State) -> Iterator[Violation]:
    ids = {task.id for task in state.tasks} | state.archived.outcomes.keys()
    expected = "a task that is on the board or in the archive"
    for task in state.tasks:
        for field, others in (("depends_on", task.depends_on), ("superseded_by", task.superseded_by)):
            for other in others:
                if other not in ids:
                    yield _violation(task.id, field, other, expected)


def _cycles(state: State) -> Iterator[Violation]:
    """Yield a violation for each dependency cycle. One walk over all tasks: a board may have thousands."""
    wanted = targets.waits_for(state.tasks)
    done: set[str] = set()
    for start in wanted:
        path: dict[str, None] = {}
        stack = [(start, iter(wanted[start]))] if start not in done else []
        path.update(dict.fromkeys([start] if stack else []))
        while stack:
            current, rest = stack[-1]
            step = next((other for other in rest if other in wanted and other not in done), None)
            if step is None:
                stack.pop()
                path.pop(current, None)
                done.add(current)
            elif step in path:
                loop = [*list(path)[list(path).index(step) :], step]
                yield _violation(step, "depends_on", " → ".join(loop), "no dependency cycle")
                done.add(step)
            else:
                path[step] = None
                stack.append((step, iter(wanted[step])))


def _double_claims(state: State) -> Iterator[Violation]:
    slots: dict[str, str] = {}
    owners: dict[str, str] = {}
    runs: dict[str, str] = {}
    for task in state.tasks:
        if task.status in _WORKED_ON and task.worktree:
            yield from _report_duplicate(slots, task.worktree, task.id, "worktree")
        if task.status is S.CLAIMED and task.assigned_to:
            yield from _report_duplicate(owners, task.assigned_to, task.id, "assigned_to")
        if task.review_run:
            yield from _report_duplicate(runs, task.review_run, task.id, "review_run")
        for run in {task.run, task.review_run} - {None}:
            agent, number = split_run(str(run))
            agent_record = state.agents.get(agent)
            if agent_record is None or not _RUN_NUMBER.fullmatch(number) or int(number) > agent_record.runs:
                yield _violation(task.id, "run", run, "a run that its agent's run counter has reached")


def _report_duplicate(seen: dict[str, str], value: str, task: str, field: str) -> Iterator[Violation]:
    if value in seen:
        yield _violation(task, field, f"{value}, which {seen[value]} has too", "a value of its own")
    seen.setdefault(value, task)
