"""up: a crew of supervisors in one terminal, or, detached, without one."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from liza.board import bell, events
from liza.programs import presets, tmux
from liza.programs.preset import UNCONFINED, Preset
from liza.rules import starting
from liza.rules.decide import UNUSABLE
from liza.rules.errors import Refused, Usage
from liza.rules.paths import ROLES, agent_id, role_of
from liza.verbs import tampering
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew
from liza.verbs.down import end_sessions
from liza.verbs.liza_path import liza_path

Say = Callable[[str, str], None]
STOP, LEFT, USELESS = "stop", "left", "useless"
_NAME = re.compile(r"[\w-]*")
_DOES = {"planner": "plans", "coder": "codes", "code-reviewer": "reviews"}
LONGEST_START = 60.0  # seconds


@dataclass(frozen=True)
class UpOptions:
    """How large a crew, and which program it runs: ``program`` for all, ``programs`` for an agent or a role before that
    (None: as the tables say). ``terminal``: each session has one that a person can attach to."""

    planners: int = 1
    coders: int = 1
    reviewers: int = 1
    program: str | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    terminal: bool = False

    def agents(self) -> tuple[str, ...]:
        """The ids of the crew's agents, planners first."""
        counts = (("planner", self.planners), ("coder", self.coders), ("code-reviewer", self.reviewers))
        return tuple(f"{role}-{number}" for role, count in counts for number in range(1, count + 1))

    def again(self) -> str:
        """The command that starts the same crew with the same programs."""
        counts = {"planner": self.planners, "coder": self.coders, "code-reviewer": self.reviewers}
        of_all = {"": self.program} if self.program else {}
        return starting.command(counts, {**of_all, **self.programs}, terminal=self.terminal)

    def program_of(self, agent: str) -> str | None:
        """The program that was asked for it."""
        return self.programs.get(agent) or self.programs.get(role_of(agent)) or self.program


def asked_programs(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The program for all, and those for a role or an agent: ``NAME``, ``coder=NAME``, ``coder-2=NAME``.

    Raises Usage where one is said twice, or of nobody.
    """
    of_all: list[str] = []
    named: dict[str, str] = {}
    for word in words:
        who, _, spec = word.partition("=")
        name = _whose(who) if spec else None
        if name is None:
            of_all.append(word)
        elif name in named:
            raise Usage(f"{name} is given two programs", "liza up --help")
        else:
            named[name] = spec
    if len(of_all) > 1:
        raise Usage(f"{' and '.join(of_all)}: one program is for all", f"liza up --program coder={of_all[1]}")
    return (of_all[0] if of_all else None), named


def _whose(who: str) -> str | None:
    """The role or the agent id in ``who``; None where a command is meant, as in ``script:A=1 ./agent.sh``.

    Raises Usage for a word that is neither.
    """
    role = "code-reviewer" if who in ("reviewer", "code_reviewer") else who
    if role in ROLES:
        return role
    try:
        return agent_id(who)
    except Usage as error:
        if _NAME.fullmatch(who):
            raise Usage(f"{who!r} is no role or agent: planner, coder, reviewer, coder-2", "liza agents") from error
        return None


def up(crew: Crew, options: UpOptions, say: Say) -> int:
    """Start the supervisors that are not there yet. In a terminal: until Ctrl+C, or until all have left.

    The exit code is the worst of theirs. Raises Missing when a program is not installed, Refused when all live already.
    """
    human_or(crew, planner=False)
    if not options.agents():
        raise Usage("a crew of nobody does nothing", "liza up --coders 1")
    programs = _refuse_early(crew, options)
    wanted = [agent for agent in options.agents() if not crew.supervised(agent)]
    if not wanted:
        raise Refused(f"{', '.join(options.agents())} run already", "liza status")
    _say_who_is_free(crew.board.read().config.permissions, (programs[agent] for agent in wanted), say)
    if options.detached:
        return _leave_running(crew, wanted, options, say)
    return _stay(crew, wanted, options, programs, say)


def _say_who_is_free(permissions: str, programs: Iterable[Preset], say: Say) -> None:
    """A person who asked for confined agents is told of programs that cannot be."""
    if permissions == "confined":
        for name in dict.fromkeys(one.name for one in programs if not one.confines):
            say("", f"{name}: {UNCONFINED}")


def _refuse_early(crew: Crew, options: UpOptions) -> dict[str, Preset]:
    """A program that is not there, or a branch, stops `up` at once, and not in the third supervisor's log. What each
    agent runs."""
    if options.terminal:
        tmux.need()
    table = presets.load(crew.paths)
    state = crew.board.read()
    tampering.need_integration(crew, state)
    config = state.config
    for who in options.programs:
        if not any(who in (agent, role_of(agent)) for agent in options.agents()):
            raise Usage(f"--program {who}=…: the crew has none ({', '.join(options.agents())})", "liza up --help")
    programs = {}
    for agent in options.agents():
        chosen = presets.choose(options.program_of(agent), os.environ, role_of(agent), config, table).preset
        presets.need(chosen)
        programs[agent] = chosen
    return programs


def _start(crew: Crew, agent: str, options: UpOptions) -> subprocess.Popen[str]:
    words = [
        str(liza_path().with_name("liza-agent")),
        agent,
        *(["--program", program] if (program := options.program_of(agent)) else []),
        *(["--tmux"] if options.terminal else []),
    ]
    crew.paths.logs.mkdir(parents=True, exist_ok=True)
    if options.detached:
        with _log(crew, agent).open("ab") as log:
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


def _leave_running(crew: Crew, agents: Sequence[str], options: UpOptions, say: Say) -> int:
    """Start them, and come back once each is at work or has ended; 1 where one has."""
    heard: queue.Queue[Any] = queue.Queue()
    fates: list[bool] = []
    with events.watch(crew.paths, (bell.place(crew.paths),)) as watch:
        watch.put_into(heard)
        begun = [_Beginning.of(crew, agent, options) for agent in agents]
        for one in begun:
            threading.Thread(target=lambda child=one.child: heard.put(child.wait()), daemon=True).start()
        end = time.monotonic() + LONGEST_START
        while begun:
            for one in tuple(begun):
                fate = one.fate(time.monotonic() >= end)
                if fate is not None:
                    fates.append(fate[0])
                    say(one.agent, fate[1])
                    begun.remove(one)
            with suppress(queue.Empty):
                heard.get(timeout=max(0.0, end - time.monotonic()) if begun else 0.0)
    return int(not all(fates))


@dataclass(frozen=True)
class _Beginning:
    """A supervisor that was started, and what was there before it: when its agent rang last, how long its log was."""

    crew: Crew
    agent: str
    child: subprocess.Popen[str]
    rung: int | None
    log: Path
    length: int

    @classmethod
    def of(cls, crew: Crew, agent: str, options: UpOptions) -> _Beginning:
        log = _log(crew, agent)
        rung, length = bell.last_rung(crew.paths, agent), log.stat().st_size if log.exists() else 0
        return cls(crew, agent, _start(crew, agent, options), rung, log, length)

    def fate(self, late: bool) -> tuple[bool, str] | None:
        """Whether it is at work, and that in words; None while that is open, which it no longer is when it is late."""
        if self.child.poll() is not None:
            return False, f"ended at once: {self._last_words()}"
        if self._has_settled() or (late and self.crew.supervised(self.agent)):
            return True, f"started; liza logs {self.agent} -f"
        return (False, f"not at work after {LONGEST_START:g} s; less {self.log}") if late else None

    def _has_settled(self) -> bool:
        """It rings when it has settled what the dead left, and once more when it has let go of its lock."""
        return bell.last_rung(self.crew.paths, self.agent) != self.rung and self.crew.supervised(self.agent)

    def _last_words(self) -> str:
        """What it said before it ended, with the next command, if it named one."""
        with self.log.open("rb") as file:
            file.seek(self.length)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        if not lines:
            return f"it said nothing, exit {self.child.returncode}"
        step = f" ({lines.pop().strip()})" if len(lines) > 1 and lines[-1].startswith("  next: ") else ""
        return lines[-1].removeprefix("liza-agent: ") + step


def _log(crew: Crew, agent: str) -> Path:
    return crew.paths.logs / f"{agent}.log"


def _stay(crew: Crew, agents: Sequence[str], options: UpOptions, programs: Mapping[str, Preset], say: Say) -> int:
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    # Before the first child is there: one that started without them would be left behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: heard.put(STOP))
    children = {agent: _start(crew, agent, options) for agent in agents}
    for agent, child in children.items():
        threading.Thread(target=_relay, args=(agent, child, say, heard), daemon=True).start()

    def is_there(role: str) -> bool:
        return any(crew.supervised(agent) for agent in options.agents() if role_of(agent) == role)

    asked = _until_all_left(children, programs, heard, say, is_there)
    if asked:
        # Of supervisors that were killed, or were stopped before they could adopt.
        end_sessions(crew)
    say("", f"all stopped; work is in .worktrees/ and on task/*. Go on: {options.again()}")
    codes = [child.returncode for child in children.values()]
    if UNUSABLE in codes:
        return UNUSABLE
    # One that was asked before it could hear ended by the signal, and had begun nothing.
    fine = (0, -signal.SIGTERM) if asked else (0,)
    return int(any(code not in fine for code in codes))


def _until_all_left(
    children: Mapping[str, subprocess.Popen[str]],
    programs: Mapping[str, Preset],
    heard: queue.SimpleQueue[str],
    say: Say,
    is_there: Callable[[str], bool],
) -> bool:
    """Ask all to stop, as often as it is asked for; whether it was. Where a program turns out to be of no use, those
    that run it are asked by themselves, and the others go on. ``is_there`` tells whether a role has anybody."""
    asked, there, leaving = 0, set(children), set[str]()
    while there:
        event, _, agent = heard.get().partition(" ")
        if event == LEFT:
            there.remove(agent)
            if there - leaving and not asked and not is_there(role_of(agent)):
                say("", f"nobody {_DOES[role_of(agent)]} now: liza status says why; the others go on")
            continue
        if event == USELESS:
            # Others with the same program would only find out the same, one after the other.
            alike = [name for name in there if name != agent and programs[name].command == programs[agent].command]
            for name in alike if not asked else ():
                leaving.add(name)
                children[name].send_signal(signal.SIGTERM)
            continue
        asked += 1
        if asked == 1:
            say("", f"stopping {len(there)} {'agent' if len(there) == 1 else 'agents'}… (again: at once)")
        for name in there:
            children[name].send_signal(signal.SIGTERM)
    return asked > 0


def _relay(agent: str, child: subprocess.Popen[str], say: Say, heard: queue.SimpleQueue[str]) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        # What it ends with in spite of itself has another beginning.
        say(agent, line.rstrip("\n").removeprefix(f"{agent}  "))
    if child.wait() == UNUSABLE:
        heard.put(f"{USELESS} {agent}")
    heard.put(f"{LEFT} {agent}")
