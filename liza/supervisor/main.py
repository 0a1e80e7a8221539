"""Entry point of liza-agent: run one supervisor from taking its lock to its exit status."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from liza.alarms import confinement
from liza.alarms.rules.alarm_checks import BY_HAND_HINT
from liza.api.api_server import ServerKeeper
from liza.board.contract import Board
from liza.box import support
from liza.crew import keeper_start, layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recorder import record_at_exit
from liza.model import setting_limits
from liza.model.configuration import Config
from liza.model.errors import LizaError, LockTimeout, Refused
from liza.model.model import SupervisorExit
from liza.model.narration import Detail
from liza.model.paths import Paths, parse_agent_id
from liza.model.statuses import AgentStatus
from liza.model.value_classes import Value, replace
from liza.programs.presets import command_line, preset_table, program_choice
from liza.programs.presets.preset import UNCONFINED_WARNING, Preset
from liza.programs.presets.program_choice import ProgramChoice
from liza.programs.session import log_file, run_directory
from liza.programs.terminal import tmux
from liza.recovery.recover import recover_crew
from liza.supervisor.loop import RetireRequest, StopRequest, Supervisor
from liza.supervisor.repository_location import naming_deletion
from liza.supervisor.rules.actions import Exit
from liza.system import crash_points, file_growth
from liza.system.locks import Lock
from liza.system.processes import Repeats
from liza.tasks.rules import bound_claims
from liza.tasks.rules.planning import move_agent
from liza.tasks.rules.up_command import another_model_command
from liza.text.redaction import redact

if TYPE_CHECKING:
    from liza.hosts.agent_tie import AgentTie

Ran = tuple[str | None, str | None]
LOCK_TIMEOUT = 2.0  # seconds: a process that only checks whether the lock is free holds it for a moment


class SupervisorOptions(Value):
    """The options of ``supervise``.

    ``until_eof``: the end of stdin stops it. ``relayed``: a `liza up` holds the other ends of its stdin and stderr, and
    prints its lines; the end of stdin means that this `up` was killed, and the supervisor goes on without it.
    ``terminal``: sessions run in a terminal that a person can attach to. ``keeps_server``: start the server of the
    worker API, and start it again when it ends. ``only``: the agent takes this task and those that it depends on.
    """

    until_eof: bool = False
    relayed: bool = False
    terminal: bool = False
    keeps_server: bool = False
    only: str | None = None


_DEFAULT_OPTIONS = SupervisorOptions()


def supervise(
    crew: Crew,
    agent: str,
    program: str | None,
    notify: Callable[[str], None],
    options: SupervisorOptions = _DEFAULT_OPTIONS,
) -> int:
    """Run the supervisor of ``agent`` until it is stopped and return its exit status.

    Raises Refused if the agent has a supervisor already.
    """
    require_person(crew, planner=False)
    with naming_deletion(crew.paths):
        return _supervise(crew, parse_agent_id(agent), program, notify, options)


def _supervise(
    crew: Crew, agent: str, program: str | None, notify: Callable[[str], None], options: SupervisorOptions
) -> int:
    state = crew.board.read()
    layout.refuse_damaged(crew.paths, state, (agent,))
    config = state.config
    table = preset_table.load_presets(crew.paths)
    choice = program_choice.choose_program(program, os.environ, agent, config, table)
    terminal = options.terminal
    preset = command_line.shape_preset(choice.preset, terminal=terminal)
    program_choice.require_choice(choice, command_line.started_program(preset, terminal=terminal), table)
    if terminal:
        tmux.require_tmux()
    notify = _ignore_output_errors(notify)
    _print_program_warnings(preset, config, notify, started_by_up=options.relayed)
    supervisor = Supervisor(crew, agent, preset, dict(os.environ), notify, terminal=terminal, only=options.only)
    # Before the first step that a stop would have to undo.
    _install_signal_handlers(supervisor)
    if options.until_eof:
        _call_at_eof(lambda: supervisor.events.put(StopRequest(force=False)))
    confinement.check_support(crew.paths, config)
    lock = _lock_agent(crew.paths, agent)
    tie = _tie_to_host(supervisor, lock)
    supervisor.location.stand_on(lock.descriptor)
    if options.relayed:
        # A stopped `up` reads no lines: they are dropped, and must not block this process.
        os.set_blocking(sys.stderr.fileno(), False)
        _call_at_eof(lambda: _go_on_without_up(crew, agent, notify))
    keeper = ServerKeeper(crew, notify)
    if options.keeps_server:
        keeper.start()
    try:
        exit_action = _run_to_exit(crew, supervisor, choice, terminal=terminal)
        tmux.close_agent_panes(crew.paths.root, agent)
        ran: Ran = (choice.spec, choice.model)
        if options.only is not None and exit_action.code == 0:
            former = state.agents.get(agent)
            ran = (None, None) if former is None else (former.program, former.model)
        _set_status(crew, agent, AgentStatus.OFFLINE, ran, tmux=terminal)
        record_at_exit(crew, agent)
    finally:
        keeper.close()
        if tie is not None:
            with suppress(LizaError):
                tie.release()
        lock.release()
        # Waking the others is only faster than their poll; a full disk must not hide the exit status.
        with suppress(OSError):
            file_growth.wake_watchers(crew.paths, agent)
    manual_command = supervisor.manual_start_command()
    line = f"{exit_action.why}{BY_HAND_HINT}: {manual_command}" if manual_command else exit_action.why
    if supervisor.refused_model():
        line = f"{supervisor.refused_model()}; next: {another_model_command(crew.board.read(), [agent])}"
    notify(line if exit_action.code else Detail(line))
    return exit_action.code


def _print_program_warnings(
    preset: Preset, config: Config, notify: Callable[[str], None], *, started_by_up: bool
) -> None:
    """Print what the program lacks, and that nothing confines it although the board asks for prompts."""
    if preset.lacks:
        notify(f"{preset.name}: {preset.lacks}")
    # An `up` that waits for its supervisors has printed this warning once for all of them.
    if not started_by_up and support.is_unconfined(config, has_prompts=preset.has_prompts):
        notify(f"{preset.name}: {UNCONFINED_WARNING}")


def _run_to_exit(crew: Crew, supervisor: Supervisor, program: ProgramChoice, *, terminal: bool) -> Exit:
    """Sign on, recover what crashed processes left, run the loop; write an exit note unless the exit was requested.

    The agent is STARTING until the recovery is done: until then no task is kept for it.
    """
    agent = supervisor.agent
    run_directory.clear_supervisor_exit(crew.paths, agent)
    try:
        _set_status(crew, agent, AgentStatus.STARTING, (program.spec, program.model), tmux=terminal)
        crash_points.point("supervisor", "registered")
        for repair in recover_crew(crew, agent):
            supervisor.notify(repair.message)
        bound_claims.refuse_bound(crew.board.read(), agent)
        _end_start(crew.board, agent)
        exit_action = supervisor.run()
    except Exception as error:
        # If .liza was deleted, write no file: that would create .liza again.
        if supervisor.location.deleted() is None:
            _write_exit_note(crew, agent, str(error) or type(error).__name__)
        raise
    if exit_action.code != 0:
        by_hand, cause = supervisor.manual_start_command(), supervisor.cause_command()
        model = supervisor.refused_model()
        if model:
            cause = another_model_command(crew.board.read(), [agent])
        _write_exit_note(crew, agent, model or exit_action.why, by_hand, cause, supervisor.login_step(), model)
    return exit_action


def _write_exit_note(
    crew: Crew, agent: str, why: str, by_hand: str = "", cause: str = "", login: str = "", model: str = ""
) -> None:
    """Record for `status` why the supervisor exited. Write errors are ignored: the caller prints the reason too."""
    with suppress(OSError, LizaError):
        exit_note = SupervisorExit(
            time=crew.clock.now(), reason=redact(why), by_hand=by_hand, next=cause, login=login, model=model
        )
        run_directory.write_supervisor_exit(crew.paths, agent, exit_note)


def _ignore_output_errors(notify: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap ``notify`` so that output errors are ignored: a closed terminal or a killed `up` must not interrupt work."""

    def write_line(text: str) -> None:
        with suppress(OSError):
            notify(text)

    return write_line


def _lock_agent(paths: Paths, agent: str) -> Lock:
    lock = Lock(paths.supervisor_lock(agent))
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout as error:
        raise Refused(f"{agent} has a supervisor already: {error.message}", f"liza agents {agent}") from error
    return lock


def _tie_to_host(supervisor: Supervisor, lock: Lock) -> AgentTie | None:
    """Hold the agent for this host, and return what holds it; None for a crew whose board is in files.

    Raises SupervisedElsewhere, HostFenced, BoardUnavailable.
    """
    if not supervisor.crew.paths.board_address.exists():
        return None
    from liza.hosts.agent_tie import tie_agent

    try:
        tie = tie_agent(supervisor.crew, supervisor.agent)
        tie.hold()
    except BaseException:
        lock.release()
        raise
    supervisor.hold_host = tie.hold
    return tie


def _set_status(crew: Crew, agent: str, status: AgentStatus, ran: Ran, *, tmux: bool) -> None:
    """Write the agent's status (STARTING or OFFLINE) to the board.

    ``ran``: its program and model, or those that it ran before as an agent of the crew.
    """
    with crew.change(agent, "start" if status == AgentStatus.STARTING else "leave") as tx:
        now = crew.clock.now()
        state = move_agent(tx.state, agent, crew.host, now)
        until = setting_limits.lease_expiry(state.config, now) if status != AgentStatus.OFFLINE else now
        after = replace(
            state.agents[agent],
            status=status,
            program=ran[0],
            model=ran[1],
            tmux=tmux,
            terminal=_terminal_name(),
            heartbeat=now,
            lease_expires=until,
        )
        tx.state = state.with_agent(agent, after)


def _end_start(board: Board, agent: str) -> None:
    """Make the agent IDLE if it is still STARTING: what it holds may have given it another status.

    A heartbeat, and no revision: nothing follows from it.
    """
    with board.heartbeat(agent) as tx:
        record = tx.state.agents.get(agent)
        if record is not None and record.status == AgentStatus.STARTING:
            tx.state = tx.state.with_agent(agent, replace(record, status=AgentStatus.IDLE))


def _terminal_name() -> str:
    try:
        return os.ttyname(sys.stdin.fileno())
    except (OSError, ValueError):
        return "unknown"


def _call_at_eof(call: Callable[[], None]) -> None:
    """Call at the end of stdin, from a thread."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        call()

    threading.Thread(target=wait, name="wait-for-up", daemon=True).start()


def _go_on_without_up(crew: Crew, agent: str, notify: Callable[[str], None]) -> None:
    """Print to the agent's log from now on, and have a keeper watch over the crew: the `up` that did both was killed.

    A failure must not stop the supervisor: without either its work goes on.
    """
    with suppress(LizaError, OSError):
        log = log_file.open_for_append(crew.paths.logs / f"{agent}.log")
        os.dup2(log.fileno(), sys.stderr.fileno())
        log.close()
    notify("its `liza up` was killed; it goes on without a terminal: liza down stops it")
    with suppress(LizaError, OSError):
        keeper_start.replace_dead_up(crew)


def _install_signal_handlers(supervisor: Supervisor) -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into StopRequest events; the second signal forces the stop. SIGUSR1 asks it to
    leave when its agent has no work.

    A thread reads the signals from a pipe that Python's C code writes to. A handler in Python would run only when the
    main thread runs, and that waits for an event: the kernel may give the signal to another thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)

    def listen() -> None:
        count, repeats = 0, Repeats()
        while numbers := os.read(reader, 1):
            number = numbers[0]
            if number == signal.SIGUSR1:
                supervisor.events.put(RetireRequest())
            elif repeats.is_new(number):
                count += 1
                supervisor.events.put(StopRequest(force=count > 1))

    threading.Thread(target=listen, name="signals", daemon=True).start()
