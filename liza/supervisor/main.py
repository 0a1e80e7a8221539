"""liza-agent: one supervisor, from its lock to its last word."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from liza.board import bell
from liza.board.lock import Lock
from liza.programs import presets, rundir, tmux
from liza.programs.preset import UNCONFINED
from liza.repo import git_start
from liza.rules import taking
from liza.rules.actions import Exit
from liza.rules.alarms import BY_HAND
from liza.rules.errors import LizaError, LockTimeout, Refused
from liza.rules.model import Left, State
from liza.rules.paths import agent_id, role_of
from liza.rules.secrets import redacted
from liza.supervisor.loop import Leave, Supervisor
from liza.supervisor.repeats import Repeats
from liza.verbs import ground
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew
from liza.verbs.record import record
from liza.verbs.recover import recover

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
    ground.refuse_damaged(crew, state, (agent,))
    config = state.config
    choice = presets.choose(program, os.environ, role_of(agent), config, presets.load(crew.paths))
    presets.need(choice.preset)
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
            bell.ring(crew.paths, agent)
    by_hand = supervisor.by_hand()
    say(f"{left.why}{BY_HAND}: {by_hand}" if by_hand else left.why)
    return left.code


def _on_duty(crew: Crew, supervisor: Supervisor, program: str) -> Exit:
    """From the first sign to the reason to leave, which is left behind unless the supervisor was asked to."""
    agent = supervisor.agent
    rundir.forget_left(crew.paths, agent)
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
        rundir.note_left(crew.paths, agent, Left(time=crew.clock.now(), reason=redacted(why), by_hand=by_hand))


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
        state = taking.register(tx.state, agent)
        tx.state = _signed(state, agent, status, program, crew)


def _signed(state: State, agent: str, status: str, program: str, crew: Crew) -> State:
    now = crew.clock.now()
    until = taking.lease(state, now) if status == "IDLE" else now
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
        supervisor.events.put(Leave(firm=False))

    threading.Thread(target=wait, name="wait-for-up", daemon=True).start()


def _hear_signals(supervisor: Supervisor) -> None:
    """Ctrl+C, TERM and HUP become events; the second one means firmly."""
    said, repeats = {"times": 0}, Repeats()

    def hear(number: int, frame: object) -> None:
        if not repeats.is_new(number):
            return
        said["times"] += 1
        supervisor.events.put(Leave(firm=said["times"] > 1))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, hear)
