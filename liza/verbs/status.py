"""status: everything about the crew at one moment, as one structure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from msgspec.structs import asdict as fields_of

from liza.board import revision_journal, signals
from liza.crew import activity, commits_ahead, draft_specs, usage_summary
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings, drift_cache
from liza.programs.brief.quoting import quote_line
from liza.programs.session import failure_patterns, run_directory, session_process
from liza.programs.terminal import tmux
from liza.rules.errors import LizaError, SharedPathBlocked
from liza.rules.model import Agent, State, Status, SupervisorExit
from liza.rules.paths import branch_of, role_of, run_id, sort_agents
from liza.rules.project import test_proof
from liza.rules.redaction import redact
from liza.rules.reports import alarms
from liza.rules.reports.alarms import Alarm, AlarmFacts
from liza.rules.reports.drift_alarms import RepositoryDrift
from liza.rules.reports.up_command import up_command_for
from liza.rules.sessions import model_silence
from liza.rules.sessions.decide import CurrentWork, find_current_work
from liza.rules.tasks import claims, picking, planning
from liza.rules.tasks.claims import STOP
from liza.rules.tasks.drafts import MissingParts
from liza.rules.tasks.picking import Evidence, LimitReached, Pick
from liza.rules.tasks.planning import is_crew_done
from liza.rules.transitions import has_done
from liza.verbs.show_task import task_rows

RECENT_REVISIONS = 30  # revisions in which an edit from outside is still news
MAX_NEWS_AGE = timedelta(days=1)
"""And for how long at most: where no crew is at work no revision comes after it."""
QUOTA_WAIT_MARGIN = timedelta(hours=1)
"""What a supervisor rests at most beyond the end of a limit that was told."""
_DELETED_ENTRY = re.compile(r"changed outside liza: (\S+): id is gone\b")


def status(crew: Crew) -> dict[str, Any]:
    """Goal, sprint, signals, tasks, agents, alerts and cost. Raises NoCrew, BoardUnreadable."""
    return summarize(crew, crew.board.read())


def summarize(crew: Crew, state: State) -> dict[str, Any]:
    """As ``status``, of a board that was read already."""
    evidence = crew.gather_evidence(state)
    standing = signals.active_signals(crew.paths)
    lacks = _incomplete_drafts(crew, state)
    found = find_alarms(crew, state, evidence, lacks)
    rows_of_agents = [agent_row(crew, state, name, evidence, standing) for name in sort_agents(state.agents)]
    waiting = [*(one for one in found if alarms.needs_person(one)), *_question_alarms(crew, state, rows_of_agents)]
    return {
        "time": crew.clock.now(),
        "revision": state.revision,
        "goal": fields_of(state.goal),
        "sprint": fields_of(state.sprint),
        "integration_branch": state.config.integration_branch,
        "tests": _tests(state),
        "signals": list(standing),
        "reasons": {name: redact(signals.read_reason(crew.paths, name)) for name in standing},
        "tasks": task_rows(state, lacks, frozenset(Status)),
        "agents": rows_of_agents,
        "waiting": [{**fields_of(one), "seconds": _seconds_since(crew, one.waiting_since)} for one in waiting],
        "alerts": [fields_of(one) for one in found],
        "ahead": _ahead(crew, state),
        "cost": usage_summary.sprint_cost(crew, state),
    }


def _tests(state: State) -> dict[str, Any]:
    """The test command, and why nobody knows that it tests the worktree that it runs in; null where that is proved."""
    return {"command": state.config.integration_command, "not_proved": test_proof.unproved_reason(state.config)}


def _question_alarms(crew: Crew, state: State, rows: Iterable[Mapping[str, Any]]) -> Iterator[Alarm]:
    """What programs ask at their terminals."""
    for one in rows:
        question = _question(crew, state, one["id"]) if one["doing"] == activity.WAITING_FOR_PERSON else None
        if question is not None:
            yield Alarm(
                "question", one["id"], f"{one['run']} shows {question}", f"liza attach {one['id']}", one["since"]
            )


def _seconds_since(crew: Crew, since: datetime | None) -> int | None:
    return None if since is None else max(0, int((crew.clock.now() - since).total_seconds()))


def _ahead(crew: Crew, state: State) -> dict[str, Any] | None:
    """How far integration is ahead of the person's branch, once nothing is left to do; nothing where git cannot be
    asked, and `liza doctor` says why it cannot."""
    if not is_crew_done(state, has_planner=False):
        return None
    try:
        found = commits_ahead.find_commits_ahead(crew, state)
    except (LizaError, OSError):
        return None
    return None if found is None else asdict(found)


def _incomplete_drafts(crew: Crew, state: State) -> dict[str, MissingParts]:
    """What drafts lack; nothing is told of that where git cannot be asked, and `liza doctor` says why it cannot."""
    try:
        return draft_specs.find_incomplete_drafts(crew, state)
    except (LizaError, OSError):
        return {}


def find_alarms(
    crew: Crew, state: State, evidence: Evidence, lacks: Mapping[str, MissingParts] | None = None
) -> tuple[Alarm, ...]:
    """What stands, seen from here. ``lacks``: as ``drafts.lacks`` gave it, where that was asked already."""
    since = {name: _signal_time(crew, name) for name in signals.active_signals(crew.paths)}
    below = tuple(_blocking_alarms(crew, state))
    # Who works without its lock file only seems to have no supervisor.
    alone = () if any(one.kind == "damaged" for one in below) else state.agents
    seen = AlarmFacts(
        evidence=evidence,
        signals=since,
        unknown_config=crew.board.unknown_config(),
        unconfirmed=confirmed_settings.find_unconfirmed(crew.paths, crew.board.read_as_written()),
        repository=_repository(crew, state),
        exits={name: left for name in state.agents if (left := _supervisor_exit(crew, name)) is not None},
        unsupervised=frozenset(name for name in alone if _is_unsupervised(crew, state, name)),
        stuck_slots=_find_stuck_slots(crew),
        missing_parts=_incomplete_drafts(crew, state) if lacks is None else lacks,
        no_progress=_stuck_agents(crew, state),
        unpriced=usage_summary.unpriced_budget_reason(crew, state),
    )
    return (*below, *alarms.evaluate_alarms(state, crew.clock.now(), seen), *_outside_edit_alarms(crew, state))


def _blocking_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """What keeps every worktree from being used, every task from being merged, or every new one from being claimed."""
    from liza.crew import layout
    from liza.crew.recovery import lost_worktrees
    from liza.repo import ref_names, stale_locks
    from liza.repo.slots import relocate, slot_records

    damaged: str | None = None
    with suppress(LizaError, OSError):
        damaged = layout.damage(crew, state)
    if damaged is not None:
        yield Alarm("damaged", "repository", damaged, layout.AGAIN)
    if crew.moved_reason is not None:
        yield Alarm("moved", "repository", crew.moved_reason, "liza down")
    yield from lost_worktrees.worktree_alarms(crew, state)
    # A board without a crew's own records, as a sample board is shown, never had pins.
    if damaged is None and crew.paths.slots_record.exists() and not crew.paths.pins.exists():
        message = ".liza/pins.json is gone, and with it which configuration may run and which settings were confirmed"
        yield Alarm("pins_gone", "repository", message, layout.FIX)
    wrong = confirmed_settings.damaged(crew.paths)
    if damaged is None and wrong is not None:
        yield Alarm("pins_damaged", "repository", wrong.message, wrong.hint)
    # Where the repository cannot be looked at, `liza doctor` says so.
    with suppress(LizaError, OSError):
        try:
            slot_records.refuse_linked_directory(crew.paths.slots)
            stale_locks.refuse_directory_at_lock(
                relocate.find_common_dir(crew.paths.root) / f"refs/heads/{state.config.integration_branch}.lock"
            )
        except SharedPathBlocked as broken:
            yield Alarm("place_broken", "worktrees", f"{broken.message}: no task can be merged", broken.hint)
    with suppress(LizaError, OSError):
        if ref_names.has_branch_named_task(relocate.find_common_dir(crew.paths.root)):
            told = ref_names.ref_conflict_error("task", branch_of("<id>"))
            yield Alarm("branch_in_the_way", "task", f"{told.message}: no new task can be claimed", told.hint)


def _find_stuck_slots(crew: Crew) -> tuple[str, ...]:
    """The slots that were set aside; none where that cannot be looked at, which `liza doctor` says."""
    from liza.repo.slots import stuck_slots

    try:
        return tuple(str(path) for path in stuck_slots.list_retired(crew.paths.slot("x").parent))
    except OSError:
        return ()


def _repository(crew: Crew, state: State) -> RepositoryDrift:
    """What others did to it; as the last look saw it where git cannot be asked: the rest of what stands is told all the
    same, and `liza doctor` says what keeps git from its work."""
    from liza.crew.drift import drift

    try:
        return drift.current_drift(crew, state)
    except (LizaError, OSError):
        return drift_cache.read_cache(crew.paths).seen


def _supervisor_exit(crew: Crew, agent: str) -> SupervisorExit | None:
    try:
        return run_directory.read_supervisor_exit(crew.paths, agent)
    except LizaError as unreadable:
        return SupervisorExit(time=crew.clock.now(), reason=unreadable.message)


def _stuck_agents(crew: Crew, state: State) -> dict[str, str]:
    """Why the living sessions of agents make no progress, as their supervisors measured."""
    found = {name: usage_summary.read_gauge(crew, state, name) for name in state.agents}
    return {name: redact(one.stuck) for name, one in found.items() if one is not None and one.stuck is not None}


def _is_unsupervised(crew: Crew, state: State, agent: str) -> bool:
    """Whether the agent holds something that a supervisor had begun and none watches. Who works by hand has no run
    directory, and needs no supervisor."""
    held = find_current_work(state, agent)
    return held is not None and crew.run_dir(held.run).exists() and not crew.is_supervised(agent)


def _outside_edit_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """Edits from outside, among the newest revisions, that overwrote something or took away a task that is still gone.
    Whatever else such an edit did stands on the board itself, and is an alarm for as long as it stands there."""
    for record in islice(revision_journal.iter_newest_first(crew.paths.journal), RECENT_REVISIONS):
        if not _is_news(record.time, crew.clock.now()):
            continue
        for place, message in enumerate(record.alerts):
            gone = _DELETED_ENTRY.match(message)
            about = f"revision {record.revision}"
            if record.overwrote and place == 0:
                yield Alarm("overwritten", about, message, "liza history -p")
            elif gone and state.task(gone[1]) is None:
                yield Alarm("external_edit", about, message, "liza history -p")


def _is_news(time: str, now: datetime) -> bool:
    """Whether a revision of that time is young enough to be told of; what bears no time was written by hand."""
    try:
        return now - datetime.fromisoformat(time) < MAX_NEWS_AGE
    except (ValueError, TypeError):
        return False


def _signal_time(crew: Crew, name: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(crew.paths.signal(name).stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def agent_row(crew: Crew, state: State, name: str, evidence: Evidence, standing: tuple[str, ...]) -> dict[str, Any]:
    """An agent as `status --json` shows it; ``why`` is the one true reason that it is not at work, or null."""
    agent = state.agents[name]
    left = _supervisor_exit(crew, name)
    holds = picking.occupation(state, name)
    why: str | None
    if left is not None or not crew.is_supervised(name):
        shown, why = _why_offline(crew, state, name, left)
    elif holds:
        shown = agent.status
        why = (
            _question_hint(crew, state, name)
            or _stopped_tmux_reason(crew, name, agent)
            or _model_silence_reason(crew, state, name)
        )
        why = why or _unmeasured(crew, state, name)
    else:
        # It holds nothing, whatever an edit from outside left standing beside its name.
        shown = agent.status if agent.status in ("STARTING", "WAITING") else "IDLE"
        why = _why_idle(crew, state, name, evidence, standing)
    measured = usage_summary.read_gauge(crew, state, name)
    waits = _read_quota_wait(crew, name, agent) if left is None and shown != "OFFLINE" else None
    if waits is not None:
        shown, why = "WAITING", _quota_wait_text(waits, agent, holds)
    return {
        "id": name,
        "role": role_of(name),
        "status": shown,
        "run": run_id(name, agent.runs) if agent.runs else None,
        "current_task": agent.current_task if holds else None,
        "lease_expires": agent.lease_expires,
        "program": agent.program,
        "why": why,
        **activity.activity_row(crew, state, name if shown not in ("OFFLINE", "WAITING") else ""),
        "calls": measured.calls if measured else None,
        "tokens": measured.used.tokens if measured and measured.used else None,
    }


def _question_hint(crew: Crew, state: State, name: str) -> str | None:
    """What the program of an agent at work asks a person, with the command to answer it."""
    question = _question(crew, state, name)
    return None if question is None else f"its program shows {question}: liza attach {name}"


def _question(crew: Crew, state: State, name: str) -> str | None:
    """What the program of an agent asks a person; nothing where that cannot be read."""
    agent = state.agents[name]
    try:
        question = crew.run_dir(run_id(name, agent.runs)).read_question() if agent.runs else None
    except LizaError:
        return None
    return None if question is None else redact(quote_line(question, 160))


def _stopped_tmux_reason(crew: Crew, name: str, agent: Agent) -> str | None:
    """Why its supervisor gets nowhere with its terminal; nothing where that cannot be known."""
    try:
        server = tmux.find_stopped_server(crew.paths.root, run_id(name, agent.runs)) if agent.runs else None
    except LizaError:
        return None
    return None if server is None else f"the tmux server of its terminal stands still: kill -CONT {server}"


def _model_silence_reason(crew: Crew, state: State, name: str) -> str | None:
    """Why an agent at work gets no answer from its model; or, until its first sign of one, why the session before got
    none. Nothing where that cannot be read."""
    agent, held = state.agents[name], find_current_work(state, name)
    if held is None:
        return None
    directory = crew.run_dir(held.run)
    try:
        note, begun = directory.read_model_note(), any(directory.read_activity())
    except LizaError:
        return None
    if note is not None:
        now, program = crew.clock.now(), (agent.program or "its program").partition(":")[0]
        since, left = (now - note.since).total_seconds(), (note.ends - now).total_seconds()
        model = model_silence.ModelSilence(note.kind, since, quote_line(note.words, 200), retried=note.retried)
        return redact(model_silence.describe_status(model, left, program))
    before = None if begun else _previous_model_failure(state, held)
    return None if before is None else f"tried again after: {redact(quote_line(before, 200))}"


def _unmeasured(crew: Crew, state: State, name: str) -> str | None:
    """Why no loop of an agent at work is seen and no budget of it is kept."""
    found = usage_summary.read_gauge(crew, state, name)
    if found is None or found.unmeasured is None:
        return None
    return f"its calls and tokens cannot be measured: {redact(quote_line(found.unmeasured, 200))}"


def _previous_model_failure(state: State, held: CurrentWork) -> str | None:
    """Why the last session that is over ended, where its model gave it no answer."""
    task = state.task(held.task) if held.task and held.kind == "work" else None
    ends = [one for one in task.history if one.event != "resume"] if task is not None else []
    return ends[-1].detail if ends and ends[-1].event in (claims.UNANSWERED, claims.QUOTA) else None


def _read_quota_wait(crew: Crew, name: str, agent: Agent) -> run_directory.UsageWait | None:
    """What it waits for; nothing where that cannot be read: the rest of what stands is told all the same.

    Nothing either for a note that no supervisor left: while a session lives, or of a limit further away than any.
    """
    try:
        found = run_directory.read_usage_wait(crew.paths, name)
        if (
            found is None
            or not timedelta(0) < found.until - crew.clock.now() <= failure_patterns.MAX_RESET_DELAY + QUOTA_WAIT_MARGIN
        ):
            return None
        return None if agent.runs and _has_session(crew, run_id(name, agent.runs)) else found
    except LizaError:
        return None


def _has_session(crew: Crew, run: str) -> bool:
    return isinstance(
        session_process.read_state(crew.run_dir(run).path),
        session_process.RunningSession | session_process.ShimStarting,
    )


def _quota_wait_text(waits: run_directory.UsageWait, agent: Agent, holds: str | None) -> str:
    """Until when, by this machine's clock, and that the task stays its own."""
    here = waits.until.astimezone()
    until = f"{here:%H:%M}" if here.date() == datetime.now(here.tzinfo).date() else f"{here:%Y-%m-%d %H:%M}"
    keeps = f", and it keeps {holds}" if holds else ""
    return f"{agent.program or 'its program'} waits until {until}{keeps}: {redact(waits.reason)}"


def _why_offline(crew: Crew, state: State, name: str, left: SupervisorExit | None) -> tuple[str, str]:
    """The status to show of an agent without a supervisor, and why it is so."""
    from liza.crew import layout

    holds, held = picking.occupation(state, name), find_current_work(state, name)
    if layout.works_unseen(crew, name):
        return state.agents[name].status, f"it works on, and its lock file was deleted: {layout.AGAIN}"
    if left is not None:
        return "OFFLINE", f"its supervisor left: {left.reason}"
    if holds is None:
        return "OFFLINE", "no supervisor runs"
    if held is not None and not crew.run_dir(held.run).exists() and not _was_stopped(state, held):
        return state.agents[name].status, f"it holds {holds} by hand: no supervisor runs"
    return "OFFLINE", f"it holds {holds}, and no supervisor runs: {up_command_for(state, name)}"


def _was_stopped(state: State, held: CurrentWork) -> bool:
    """Whether a supervisor, or whoever ended it, gave the work back: no person does it by hand."""
    task = state.task(held.task) if held.task else None
    return task is not None and has_done(task, STOP, held.run)


def _why_idle(crew: Crew, state: State, name: str, evidence: Evidence, standing: tuple[str, ...]) -> str:
    if standing:
        return f"{standing[0]} stands; liza resume takes it away"
    role = role_of(name)
    if role == "planner":
        trigger = planning.next_trigger(state)
        return trigger if isinstance(trigger, str) else f"about to plan: {trigger.name}"
    if role == "code-reviewer":
        review = picking.pick_review(state, name, evidence)
        return f"about to review {review.task.id}" if isinstance(review, Pick) else review.why
    picked = picking.pick_task(state, name, crew.clock.now(), evidence)
    if isinstance(picked, Pick):
        return f"about to take {picked.task.id}"
    return f"{picked.task.id}: {picked.reason}" if isinstance(picked, LimitReached) else picked.why
