"""status: the state of the crew at one moment: gather the facts, and print them or draw them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from liza.alarms import current_alarms
from liza.api import api_server
from liza.board.address import read_address
from liza.board.last_copy import WITHOUT_SERVER, find_age
from liza.breaker.rules.breaker_trips import signal_hint
from liza.config.rules import test_proof
from liza.crew import deleted_parts, layout, logged_alarms
from liza.crew.crew import Crew
from liza.git import integration_tip
from liza.model import setting_limits
from liza.model.alarm_table import Alarm, AlarmKind, waits_for_person
from liza.model.backoff import MAX_LIMIT
from liza.model.derived import CurrentWork, find_current_work
from liza.model.errors import LizaError
from liza.model.history_events import HistoryEvent
from liza.model.model import Agent, State, SupervisorExit
from liza.model.paths import Paths, role_of, run_id, sort_agents
from liza.model.statuses import AgentStatus, AgentWord, WorkKind
from liza.model.targets import CommitsAhead
from liza.model.value_classes import decodable, replace
from liza.programs import liveness
from liza.programs.rules import model_silence
from liza.programs.rules.program_spec import parse_spec
from liza.programs.session import run_directory
from liza.programs.terminal import tmux
from liza.recovery.stopped_processes import find_stopped
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import picking, planning, submissions
from liza.tasks.rules.picking import Evidence, LimitReached, Pick
from liza.tasks.rules.planning import is_crew_done
from liza.tasks.rules.up_command import start_command_for, up_command_for
from liza.text.formats import format_duration
from liza.text.quoting import quote_line
from liza.text.redaction import redact
from liza.usage import costs, shared_facts
from liza.usage.shared_facts import HostReport
from liza.view import activity
from liza.view.rules.picture import CrewReport, build_picture
from liza.view.rules.structs import AgentRow, BoardPlace, CrewFacts, Picture

WAIT_MARGIN = timedelta(hours=1)
"""Longest time that a supervisor rests after the announced end of a usage limit."""
_AT_REST = (AgentStatus.OFFLINE, AgentStatus.WAITING)


def status(crew: Crew) -> CrewReport:
    """Return the facts about the crew now, and the picture of them. Raises NoCrew, BoardUnreadable."""
    facts = gather_facts(crew, crew.board.read())
    return CrewReport(facts, build_picture(facts))


def look(crew: Crew) -> Picture:
    """Return the picture of the crew now. Raises NoCrew, BoardUnreadable."""
    return status(crew).picture


def gather_facts(crew: Crew, state: State) -> CrewFacts:
    """Return what is known about the crew now, for a board that was read already."""
    evidence = gather_evidence(crew, state)
    signals = crew.board.signals()
    missing_parts = current_alarms.find_missing_parts(crew, state)
    present = current_alarms.find_alarms(crew, state, evidence, missing_parts)
    agents = tuple(agent_row(crew, state, name, evidence, tuple(signals)) for name in sort_agents(state.agents))
    waiting = (
        *(alarm for alarm in present if waits_for_person(alarm.kind)),
        *_question_alarms(crew, state, agents),
    )
    return CrewFacts(
        now=crew.clock.now(),
        state=state,
        agents=agents,
        alarms=present,
        waiting=waiting,
        alarm_times=logged_alarms.find_times(crew.paths, (*present, *waiting)) if crew.paths.alerts.exists() else {},
        missing=missing_parts,
        signals={name: redact(signal.reason) for name, signal in signals.items()},
        costs=costs.sprint_cost(crew, state),
        ahead=_ahead(crew, state),
        server=api_server.describe(crew),
        up=_up_command(crew, state),
        outdated_proof=test_proof.outdated_reason(state.config),
        board=_find_board_place(crew),
        overlaps=picking.find_shared_files(state, evidence.changed),
        closed=setting_limits.describe_opening(state.config, crew.clock.now()),
    )


def _find_board_place(crew: Crew) -> BoardPlace | None:
    address = read_address(crew.paths.board_address) if crew.is_on_server else None
    if address is None:
        return None
    from liza.hosts import host_list, lease_file

    age = find_age(crew.board)
    hosts = host_list.list_hosts(crew) if age is None else ()
    ends = lease_file.find_lease_ends(crew.paths)
    step = next((host.next for host in hosts if host.next), "liza host list") if age is None else WITHOUT_SERVER
    return BoardPlace(address.server, address.crew, address.host, age, hosts, ends.sessions_end, ends.takeover_in, step)


def _up_command(crew: Crew, state: State) -> str | None:
    """Return the command that starts supervisors if tasks are open and none runs; null otherwise."""
    if is_crew_done(state, has_planner=False) or not state.tasks or any(map(crew.is_supervised, state.agents)):
        return None
    return up_command_for(state) if submissions.needs_crew(state) else submissions.merge_command(state)


def _question_alarms(crew: Crew, state: State, rows: Iterable[AgentRow]) -> Iterator[Alarm]:
    """Alarms for the questions that programs show at their terminals."""
    for row in rows:
        question = _question(crew, state, row.id) if row.doing == AgentWord.WAITS_FOR_YOU else None
        if question is not None:
            run = str(row.run)
            yield AlarmKind.QUESTION.alarm(row.id, run=run, question=question, waiting_since=row.since)


def _ahead(crew: Crew, state: State) -> CommitsAhead | None:
    """Commits by which integration is ahead of the person's branch, once all tasks are done.

    None if git fails: `liza doctor` reports why.
    """
    if not is_crew_done(state, has_planner=False):
        return None
    try:
        return integration_tip.find_commits_ahead(crew.git, state, crew.paths)
    except (LizaError, OSError):
        return None


def agent_row(crew: Crew, state: State, name: str, evidence: Evidence, signal_names: tuple[str, ...]) -> AgentRow:
    """Return an agent as it is now."""
    report = shared_facts.find_report(crew, name)
    if report is not None:
        return _reported_row(crew, report)
    agent = state.agents[name]
    exit_note = current_alarms.read_supervisor_exit(crew, name)
    holds = picking.occupation(state, name)
    # If it holds nothing, an edit from outside may have left another status on the board.
    may_be_shown = holds or agent.status in (AgentStatus.STARTING, AgentStatus.WAITING)
    shown = agent.status if may_be_shown else AgentStatus.IDLE
    why: str | None
    if exit_note is not None or not crew.is_supervised(name):
        shown, why = _why_offline(crew, state, name, exit_note)
    elif host := crew.find_holder(name):
        why = f"on the host {host}"
    elif (stopped := _stopped_reason(crew.paths, name)) is not None:
        why = stopped
    elif holds:
        why = (
            _question_hint(crew, state, name)
            or _stopped_tmux_reason(crew.paths, name, agent)
            or _model_silence_reason(crew, state, name)
        )
        why = why or _unmeasured(crew.paths, state, name) or _why_not_resumed(crew, state, name)
    else:
        why = _why_idle(crew, state, name, evidence, signal_names)
    gauge = costs.read_gauge(crew.paths, state, name)
    wait = _read_wait(crew, name, agent) if exit_note is None and shown != AgentStatus.OFFLINE else None
    if wait is not None:
        shown, why = AgentStatus.WAITING, _describe_wait(wait, agent, holds)
    current = activity.find_activity(crew, state, name) if shown not in _AT_REST else None
    return AgentRow(
        id=name,
        role=role_of(name),
        status=shown,
        run=run_id(name, agent.runs) if agent.runs else None,
        current_task=agent.current_task if holds else None,
        lease_expires=agent.lease_expires,
        program=agent.program,
        model=agent.model,
        host=agent.host or None,
        why=why,
        **_state_row(crew, state, name, signal_names),
        doing=None if current is None else current.label,
        since=None if current is None else current.since,
        seconds=None if current is None else current.seconds(crew.clock.now()),
        phase=None if current is None else current.phase,
        state_source=None if current is None else current.state_source,
        reported_by=None if current is None else current.reported_by,
        calls=gauge.calls if gauge else None,
        denials=current_alarms.count_denials(crew.paths, state, name),
        tokens=gauge.used.tokens if gauge and gauge.used else None,
        unmeasured=costs.unmeasured_reason(crew.paths, state, name) if shown not in _AT_REST else None,
        context=agent.context_percent or None if current is not None else None,
        until=None if wait is None else wait.until,
    )


def _reported_row(crew: Crew, report: HostReport) -> AgentRow:
    """Return an agent of another host, as that host sees it."""
    row: AgentRow = msgspec.json.decode(report.agent.row, type=decodable(AgentRow))
    now = crew.clock.now()
    age = (now - report.time).total_seconds()
    where = f"on the host {report.host}"
    if age >= shared_facts.SILENT_SECONDS:
        where += f", which told this {format_duration(age)} ago"
    seconds = None if row.since is None or row.doing is None else max(0, int((now - row.since).total_seconds()))
    return replace(row, host=report.host, why=f"{row.why}, {where}" if row.why else where, seconds=seconds)


def find_off(crew: Crew, state: State) -> frozenset[str]:
    """Return the agents that have no supervisor, and hold nothing by hand."""
    exits = {name: current_alarms.read_supervisor_exit(crew, name) for name in state.agents}
    gone = [name for name, note in exits.items() if note is not None or not crew.is_supervised(name)]
    return frozenset(name for name in gone if _why_offline(crew, state, name, exits[name])[0] == AgentStatus.OFFLINE)


def _state_row(crew: Crew, state: State, name: str, signal_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the operating state of an agent; all values are null if the files of its session cannot be read."""
    try:
        report = activity.find_state(crew, state, name, signal_names)
    except (LizaError, OSError):
        return {"state": None, "evidence": None, "state_since": None}
    return {"state": report.state.value, "evidence": report.evidence, "state_since": report.since}


def _question_hint(crew: Crew, state: State, name: str) -> str | None:
    """The question that a working agent's program asks a person, with the command to answer it."""
    question = _question(crew, state, name)
    return None if question is None else f"its program shows {question}: liza attach {name}"


def _question(crew: Crew, state: State, name: str) -> str | None:
    """The question that an agent's program asks a person; None if there is no question, or it cannot be read."""
    agent = state.agents[name]
    try:
        question = crew.run_dir(run_id(name, agent.runs)).read_question() if agent.runs else None
    except LizaError:
        return None
    return None if question is None else redact(quote_line(question, 160))


def _stopped_tmux_reason(paths: Paths, name: str, agent: Agent) -> str | None:
    """Reason if the tmux server of the agent's terminal is stopped; None if it is not, or if that is unknown."""
    run = run_id(name, agent.runs)
    try:
        if not agent.runs or not os.path.lexists(paths.run(run) / run_directory.PANE_FILE):
            return None

        server = tmux.find_stopped_server(paths.root, run)
    except LizaError:
        return None
    return None if server is None else f"the tmux server of its terminal is stopped: kill -CONT {server}"


def _model_silence_reason(crew: Crew, state: State, name: str) -> str | None:
    """Why a working agent gets no answer from its model.

    Until the session's first activity: why the previous session got none. None if that cannot be read.
    """
    agent, work = state.agents[name], find_current_work(state, name)
    if work is None:
        return None
    directory = crew.run_dir(work.run)
    try:
        note, is_active = directory.read_model_note(), any(directory.read_activity())
    except LizaError:
        return None
    if note is not None:
        now, program = crew.clock.now(), parse_spec(agent.program or "its program").name
        since, seconds_left = (now - note.since).total_seconds(), (note.ends - now).total_seconds()
        model = model_silence.ModelSilence(note.kind, since, quote_line(note.words, 200), retried=note.retried)
        return redact(model_silence.describe_status(model, seconds_left, program))
    previous = None if is_active else _previous_model_failure(state, work)
    return None if previous is None else f"tried again after: {redact(quote_line(previous, 200))}"


def _unmeasured(paths: Paths, state: State, name: str) -> str | None:
    """Why loops of a working agent cannot be detected and its budget cannot be enforced; None if they can."""
    gauge = costs.read_gauge(paths, state, name)
    if gauge is None or gauge.unmeasured is None:
        return None
    return f"its calls and tokens cannot be measured: {redact(quote_line(gauge.unmeasured, 200))}"


def _previous_model_failure(state: State, work: CurrentWork) -> str | None:
    """Why the last ended session got no answer from its model; None if it ended for another reason."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    ends = [event for event in task.history if event.event != HistoryEvent.RESUME] if task is not None else []
    return ends[-1].detail if ends and ends[-1].event in (HistoryEvent.UNANSWERED, HistoryEvent.QUOTA) else None


def _read_wait(crew: Crew, name: str, agent: Agent) -> run_directory.AgentWait | None:
    """Return what an agent waits for; None if it waits for nothing, or the record cannot be read.

    None also for a note that no supervisor can have written: while a session lives, or with an end beyond the longest
    limit.
    """
    try:
        wait = run_directory.read_wait(crew.paths, name)
        if wait is None or not timedelta(0) < wait.until - crew.clock.now() <= MAX_LIMIT + WAIT_MARGIN:
            return None
        return None if agent.runs and _has_session(crew, run_id(name, agent.runs)) else wait
    except LizaError:
        return None


def _why_not_resumed(crew: Crew, state: State, name: str) -> str | None:
    """Return until when no session of an agent that has work starts; None if it has one, or one may start."""
    closed = setting_limits.describe_opening(state.config, crew.clock.now())
    return None if closed is None or _has_session(crew, run_id(name, state.agents[name].runs)) else closed


def _has_session(crew: Crew, run: str) -> bool:
    return isinstance(
        liveness.read_state(crew.run_dir(run).path),
        liveness.RunningSession | liveness.ShimStarting,
    )


def _describe_wait(wait: run_directory.AgentWait, agent: Agent, holds: str | None) -> str:
    """Describe until when an agent waits, in local time, and the task that it keeps."""
    local_end = wait.until.astimezone()
    until = (
        f"{local_end:%H:%M}"
        if local_end.date() == datetime.now(local_end.tzinfo).date()
        else f"{local_end:%Y-%m-%d %H:%M}"
    )
    keeps = f", and it keeps {holds}" if holds else ""
    return f"{agent.program or 'its program'} waits until {until}{keeps}: {redact(wait.reason)}"


def _why_offline(crew: Crew, state: State, name: str, exit_note: SupervisorExit | None) -> tuple[str, str]:
    """Status to show for an agent without a supervisor, and the reason."""
    holds, work = picking.occupation(state, name), find_current_work(state, name)
    if state.agents[name].program and layout.works_unseen(crew.paths, name):
        return state.agents[name].status, f"it still runs, but its lock file was deleted: {deleted_parts.AGAIN}"
    if exit_note is not None:
        return AgentStatus.OFFLINE, f"its supervisor left: {exit_note.reason}"
    if holds is None:
        return AgentStatus.OFFLINE, "no supervisor runs"
    if (host := state.agents[name].host) not in ("", crew.host):
        return AgentStatus.OFFLINE, f"it holds {holds} on the host {host}, where no supervisor of it runs"
    if work is not None and not crew.run_dir(work.run).exists() and not activity.is_given_back(state, work):
        return state.agents[name].status, f"it holds {holds} by hand: no supervisor runs"
    has_others = any(map(crew.is_supervised, state.agents))
    step = start_command_for(state, (name,)) if has_others else up_command_for(state, name)
    return AgentStatus.OFFLINE, f"it holds {holds}, and no supervisor runs: {step}"


def _stopped_reason(paths: Paths, name: str) -> str | None:
    """Return that the agent's supervisor is stopped, with the command that continues it; None if it is not."""
    pid = find_stopped(paths, [name]).supervisors.get(name)
    return None if pid is None else f"its supervisor (process {pid}) is stopped: kill -CONT {pid}"


def _why_idle(crew: Crew, state: State, name: str, evidence: Evidence, signal_names: tuple[str, ...]) -> str:
    if state.agents[name].status == AgentStatus.STARTING:
        return "its supervisor starts up"
    if signal_names:
        return f"{signal_names[0]} is set; {signal_hint(state)} removes it"
    closed = setting_limits.describe_opening(state.config, crew.clock.now())
    if closed is not None:
        return closed
    role = role_of(name)
    if role == "planner":
        trigger = planning.next_trigger(state, evidence)
        return trigger if isinstance(trigger, str) else f"about to plan: {trigger.name}"
    if role == "code-reviewer":
        review = picking.pick_review(state, name, evidence)
        return f"about to review {review.task.id}" if isinstance(review, Pick) else review.why
    pick = picking.pick_task(state, name, crew.clock.now(), evidence)
    if isinstance(pick, Pick):
        return f"about to take {pick.task.id}"
    return f"{pick.task.id}: {pick.reason}" if isinstance(pick, LimitReached) else pick.why
