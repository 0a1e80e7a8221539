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
from liza.crew.caller import human_or
from liza.crew.crew import Crew
from liza.crew.recovery.recorder import record
from liza.crew.recovery.recover import recover
from liza.programs.presets import preset_table
from liza.programs.presets.preset import UNCONFINED
from liza.programs.session import run_directory
from liza.programs.terminal import tmux
from liza.repo import git_start
from liza.rules.errors import LizaError, LockTimeout, Refused
from liza.rules.model import State, SupervisorExit
from liza.rules.paths import agent_id, role_of
from liza.rules.reports.alarms import BY_HAND
from liza.rules.secrets import redacted
from liza.rules.sessions.actions import Exit
from liza.rules.tasks import claims
from liza.supervisor.loop import StopRequest, Supervisor
from liza.system.file_lock import Lock
from liza.system.signal_repeats import Repeats

TAKE_LOCK = 2.0  # seconds: somebody who only looks whether it is free holds it for a moment


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
    human_or(crew, planner=False)
    agent = agent_id(agent)
    git_start.use_library()
    state = crew.board.read()
    layout.refuse_damaged(crew, state, (agent,))
    config = state.config
    choice = preset_table.choose(program, os.environ, role_of(agent), config, preset_table.load(crew.paths))
    preset_table.need(choice.preset)
    if terminal:
        tmux.need()
    say = _to_whoever_listens(say)
    if choice.preset.lacks:
        say(f"{choice.preset.name}: {choice.preset.lacks}")
    # An `up` that waits for its supervisors has said it, once for all of them.
    if not until_eof and config.permissions == "confined" and not choice.preset.confines:
        say(f"{choice.preset.name}: {UNCONFINED}")
    supervisor = Supervisor(crew, agent, choice.preset, dict(os.environ), say, terminal=terminal)
    # Before the first thing that it would have to take back.
    _hear_signals(supervisor)
    if until_eof:
        _hear_eof(supervisor)
    lock = _only_one(crew, agent)
    supervisor.ground.stand_on(lock.descriptor)
    try:
        left = _on_duty(crew, supervisor, choice.spec)
        tmux.close_of(crew.paths.root, agent)
        _sign(crew, agent, "OFFLINE", choice.spec)
        record(crew)
    finally:
        lock.release()
        # It only wakes others sooner, and a disk that is full must not hide how this ended.
        with suppress(OSError):
            wake_up.ring(crew.paths, agent)
    by_hand = supervisor.by_hand()
    say(f"{left.why}{BY_HAND}: {by_hand}" if by_hand else left.why)
    return left.code


def _on_duty(crew: Crew, supervisor: Supervisor, program: str) -> Exit:
    """From the first sign to the reason to leave, which is left behind unless the supervisor was asked to."""
    agent = supervisor.agent
    run_directory.forget_left(crew.paths, agent)
    try:
        _sign(crew, agent, "IDLE", program)
        for settled in recover(crew, agent):
            supervisor.say(settled.what)
        left = supervisor.run()
    except Exception as error:
        # Where .liza was deleted, nothing of it is made anew.
        if supervisor.ground.deleted() is None:
            _leave_behind(crew, agent, str(error) or type(error).__name__)
        raise
    if left.code != 0:
        _leave_behind(crew, agent, left.why, supervisor.by_hand())
    return left


def _leave_behind(crew: Crew, agent: str, why: str, by_hand: str = "") -> None:
    # A disk that takes no note must not hide why this ended: whoever started it is told.
    with suppress(OSError, LizaError):
        run_directory.note_left(
            crew.paths, agent, SupervisorExit(time=crew.clock.now(), reason=redacted(why), by_hand=by_hand)
        )


def _to_whoever_listens(say: Callable[[str], None]) -> Callable[[str], None]:
    """A terminal that was closed, or an `up` that was killed, is no reason to leave work half done."""

    def told(text: str) -> None:
        with suppress(OSError):
            say(text)

    return told


def _only_one(crew: Crew, agent: str) -> Lock:
    lock = Lock(crew.paths.supervisor_lock(agent))
    try:
        lock.acquire(timeout=TAKE_LOCK)
    except LockTimeout as held:
        raise Refused(f"{agent} has a supervisor already: {held.message}", f"liza agents {agent}") from held
    return lock


def _sign(crew: Crew, agent: str, status: str, program: str) -> None:
    """On or off duty, as readers see it."""
    with crew.change(agent, "start" if status == "IDLE" else "leave") as tx:
        state = claims.register(tx.state, agent)
        tx.state = _signed(state, agent, status, program, crew)


def _signed(state: State, agent: str, status: str, program: str, crew: Crew) -> State:
    now = crew.clock.now()
    until = claims.lease(state, now) if status == "IDLE" else now
    known = state.agents[agent]
    changed = replace(known, status=status, program=program, terminal=_terminal(), heartbeat=now, lease_expires=until)
    return state.with_agent(agent, changed)


def _terminal() -> str:
    try:
        return os.ttyname(sys.stdin.fileno())
    except (OSError, ValueError):
        return "unknown"


def _hear_eof(supervisor: Supervisor) -> None:
    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        supervisor.events.put(StopRequest(firm=False))

    threading.Thread(target=wait, name="wait-for-up", daemon=True).start()


def _hear_signals(supervisor: Supervisor) -> None:
    """Ctrl+C, TERM and HUP become events; the second one means firmly."""
    said, repeats = {"times": 0}, Repeats()

    def hear(number: int, frame: object) -> None:
        if not repeats.is_new(number):
            return
        said["times"] += 1
        supervisor.events.put(StopRequest(firm=said["times"] > 1))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, hear)
