"""liza-agent: one supervisor, from its lock to its last word."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from liza.board import wake_up
from liza.crew import layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recovery.recorder import record_history
from liza.crew.recovery.recover import recover_crew
from liza.programs.presets import preset_table
from liza.programs.presets.preset import UNCONFINED_WARNING
from liza.programs.session import run_directory
from liza.programs.terminal import tmux
from liza.repo import git_start
from liza.rules.errors import LizaError, LockTimeout, Refused
from liza.rules.model import State, SupervisorExit
from liza.rules.paths import parse_agent_id, role_of
from liza.rules.redaction import redact
from liza.rules.reports.alarms import BY_HAND_HINT
from liza.rules.sessions.actions import Exit
from liza.rules.tasks import claims
from liza.supervisor.loop import StopRequest, Supervisor
from liza.system.file_lock import Lock
from liza.system.signal_repeats import Repeats

LOCK_TIMEOUT = 2.0  # seconds: somebody who only looks whether it is free holds it for a moment


def supervise(
    crew: Crew,
    agent: str,
    program: str | None,
    say: Callable[[str], None],
    *,
    until_eof: bool = False,
    terminal: bool = False,
) -> int:
    """Run the supervisor of ``agent`` until it is stopped; its exit code. Raises Refused for a second one.

    ``until_eof``: the end of stdin stops it too. `up` holds the other end, so its kill -9 is heard. ``terminal``: its
    sessions have one that a person can attach to.
    """
    require_person(crew, planner=False)
    agent = parse_agent_id(agent)
    git_start.use_library()
    state = crew.board.read()
    layout.refuse_damaged(crew, state, (agent,))
    config = state.config
    choice = preset_table.choose_program(
        program, os.environ, role_of(agent), config, preset_table.load_presets(crew.paths)
    )
    preset_table.require_executable(choice.preset)
    if terminal:
        tmux.require_tmux()
    say = _ignore_output_errors(say)
    if choice.preset.lacks:
        say(f"{choice.preset.name}: {choice.preset.lacks}")
    # An `up` that waits for its supervisors has said it, once for all of them.
    if not until_eof and config.permissions == "confined" and not choice.preset.has_confinement:
        say(f"{choice.preset.name}: {UNCONFINED_WARNING}")
    supervisor = Supervisor(crew, agent, choice.preset, dict(os.environ), say, terminal=terminal)
    # Before the first thing that it would have to take back.
    _install_signal_handlers(supervisor)
    if until_eof:
        _stop_at_eof(supervisor)
    lock = _lock_agent(crew, agent)
    supervisor.location.stand_on(lock.descriptor)
    try:
        left = _run_to_exit(crew, supervisor, choice.spec)
        tmux.close_agent_panes(crew.paths.root, agent)
        _set_status(crew, agent, "OFFLINE", choice.spec)
        record_history(crew)
    finally:
        lock.release()
        # It only wakes others sooner, and a disk that is full must not hide how this ended.
        with suppress(OSError):
            wake_up.wake_watchers(crew.paths, agent)
    by_hand = supervisor.manual_start_command()
    say(f"{left.why}{BY_HAND_HINT}: {by_hand}" if by_hand else left.why)
    return left.code


def _run_to_exit(crew: Crew, supervisor: Supervisor, program: str) -> Exit:
    """From the first sign to the reason to leave, which is left behind unless the supervisor was asked to."""
    agent = supervisor.agent
    run_directory.clear_supervisor_exit(crew.paths, agent)
    try:
        _set_status(crew, agent, "IDLE", program)
        for settled in recover_crew(crew, agent):
            supervisor.notify(settled.message)
        left = supervisor.run()
    except Exception as error:
        # Where .liza was deleted, nothing of it is made anew.
        if supervisor.location.deleted() is None:
            _write_exit_note(crew, agent, str(error) or type(error).__name__)
        raise
    if left.code != 0:
        _write_exit_note(crew, agent, left.why, supervisor.manual_start_command())
    return left


def _write_exit_note(crew: Crew, agent: str, why: str, by_hand: str = "") -> None:
    # A disk that takes no note must not hide why this ended: whoever started it is told.
    with suppress(OSError, LizaError):
        run_directory.write_supervisor_exit(
            crew.paths, agent, SupervisorExit(time=crew.clock.now(), reason=redact(why), by_hand=by_hand)
        )


def _ignore_output_errors(say: Callable[[str], None]) -> Callable[[str], None]:
    """A terminal that was closed, or an `up` that was killed, is no reason to leave work half done."""

    def told(text: str) -> None:
        with suppress(OSError):
            say(text)

    return told


def _lock_agent(crew: Crew, agent: str) -> Lock:
    lock = Lock(crew.paths.supervisor_lock(agent))
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout as held:
        raise Refused(f"{agent} has a supervisor already: {held.message}", f"liza agents {agent}") from held
    return lock


def _set_status(crew: Crew, agent: str, status: str, program: str) -> None:
    """On or off duty, as readers see it."""
    with crew.change(agent, "start" if status == "IDLE" else "leave") as tx:
        state = claims.ensure_agent(tx.state, agent)
        tx.state = _with_status(state, agent, status, program, crew)


def _with_status(state: State, agent: str, status: str, program: str, crew: Crew) -> State:
    now = crew.clock.now()
    until = claims.lease_expiry(state, now) if status == "IDLE" else now
    known = state.agents[agent]
    changed = replace(
        known, status=status, program=program, terminal=_terminal_name(), heartbeat=now, lease_expires=until
    )
    return state.with_agent(agent, changed)


def _terminal_name() -> str:
    try:
        return os.ttyname(sys.stdin.fileno())
    except (OSError, ValueError):
        return "unknown"


def _stop_at_eof(supervisor: Supervisor) -> None:
    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        supervisor.events.put(StopRequest(force=False))

    threading.Thread(target=wait, name="wait-for-up", daemon=True).start()


def _install_signal_handlers(supervisor: Supervisor) -> None:
    """Ctrl+C, TERM and HUP become events; the second one means firmly."""
    said, repeats = {"times": 0}, Repeats()

    def hear(number: int, frame: object) -> None:
        if not repeats.is_new(number):
            return
        said["times"] += 1
        supervisor.events.put(StopRequest(force=said["times"] > 1))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, hear)
