"""up: a crew of supervisors in one terminal, or, detached, without one."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from liza.programs import presets
from liza.rules.errors import Refused, Usage
from liza.rules.paths import role_of
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew
from liza.verbs.down import end_sessions
from liza.verbs.liza_path import liza_path

Say = Callable[[str, str], None]
STOP, LEFT = "stop", "left"


@dataclass(frozen=True)
class UpOptions:
    """How large a crew, and which program it runs (None: as the tables say)."""

    planners: int = 1
    coders: int = 1
    reviewers: int = 1
    program: str | None = None
    detached: bool = False

    def agents(self) -> tuple[str, ...]:
        """The ids of the crew's agents, planners first."""
        counts = (("planner", self.planners), ("coder", self.coders), ("code-reviewer", self.reviewers))
        return tuple(f"{role}-{number}" for role, count in counts for number in range(1, count + 1))


def up(crew: Crew, options: UpOptions, say: Say) -> int:
    """Start the supervisors that are not there yet. In a terminal: until Ctrl+C, or until all have left.

    The exit code is the worst of theirs. Raises Missing when a program is not installed, Refused when all live already.
    """
    human_or(crew, planner=False)
    if not options.agents():
        raise Usage("a crew of nobody does nothing", "liza up --coders 1")
    _refuse_early(crew, options)
    wanted = [agent for agent in options.agents() if not crew.supervised(agent)]
    if not wanted:
        raise Refused(f"{', '.join(options.agents())} run already", "liza status")
    if not options.detached:
        return _stay(crew, wanted, options, say)
    for agent in wanted:
        _start(crew, agent, options)
        say(agent, f"started; liza logs {agent} -f")
    return 0


def _refuse_early(crew: Crew, options: UpOptions) -> None:
    """A program that is not there stops `up` at once, and not in the third supervisor's log."""
    table = presets.load(crew.paths)
    config = crew.board.read().config
    for agent in options.agents():
        presets.need(presets.choose(options.program, os.environ, role_of(agent), config, table).preset)


def _start(crew: Crew, agent: str, options: UpOptions) -> subprocess.Popen[str]:
    words = [
        str(liza_path().with_name("liza-agent")),
        agent,
        *(["--program", options.program] if options.program else []),
    ]
    crew.paths.logs.mkdir(parents=True, exist_ok=True)
    if options.detached:
        with (crew.paths.logs / f"{agent}.log").open("ab") as log:
            return subprocess.Popen(
                words,
                cwd=crew.paths.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
            )
    # In a group of its own: Ctrl+C reaches this process alone, which then asks each supervisor once.
    return subprocess.Popen(
        [*words, "--until-eof"],
        cwd=crew.paths.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
        text=True,
        errors="replace",
    )


def _stay(crew: Crew, agents: Sequence[str], options: UpOptions, say: Say) -> int:
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    # Before the first child is there: one that started without them would be left behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: heard.put(STOP))
    children = [_start(crew, agent, options) for agent in agents]
    for child in children:
        threading.Thread(target=_relay, args=(child, say, heard), daemon=True).start()
    asked = _until_all_left(children, heard, say)
    if asked:
        # Of supervisors that were killed, or were stopped before they could adopt.
        end_sessions(crew)
    say("", "all stopped; work is in .worktrees/ and on task/*. Go on: liza up")
    # One that was asked before it could hear ended by the signal, and had begun nothing.
    fine = (0, -signal.SIGTERM) if asked else (0,)
    return int(any(child.returncode not in fine for child in children))


def _until_all_left(children: Sequence[subprocess.Popen[str]], heard: queue.SimpleQueue[str], say: Say) -> bool:
    """Ask all to stop, as often as it is asked for; whether it was."""
    asked, left = 0, 0
    while left < len(children):
        if heard.get() == LEFT:
            left += 1
            continue
        asked += 1
        if asked == 1:
            say("", f"stopping {len(children)} agents… (again: at once)")
        for child in children:
            child.send_signal(signal.SIGTERM)
    return asked > 0


def _relay(child: subprocess.Popen[str], say: Say, heard: queue.SimpleQueue[str]) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        agent, _, text = line.rstrip("\n").partition("  ")
        say(agent, text)
    child.wait()
    heard.put(LEFT)
