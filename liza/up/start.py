"""up: a crew of supervisors in one terminal, or, detached, without one."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liza.board import events, wake_up
from liza.crew import draft_specs, layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.programs.presets import preset_table
from liza.programs.presets.preset import UNCONFINED_WARNING, Preset
from liza.programs.terminal import tmux
from liza.rules.errors import Refused, UsageError
from liza.rules.paths import role_of
from liza.rules.reports.narration import LIZA
from liza.rules.tasks.planning import is_crew_done
from liza.up import foreground
from liza.up.crew_options import UpOptions, parse_programs, start_supervisor, supervisor_log
from liza.up.feed import Feed, PrintTimedLine
from liza.up.foreground import PrintLine

__all__ = ["UpOptions", "parse_programs", "up"]
START_LIMIT = 60.0  # seconds
PRINT_LIMIT = 2.0  # seconds that a reader has to take them


def up(crew: Crew, options: UpOptions, say: PrintTimedLine) -> int:
    """Start the supervisors that are not there yet. In a terminal: until Ctrl+C, or until all have left.

    The exit code is the worst of theirs. Raises Missing when a program is not installed, Refused when all live already.
    """
    require_person(crew, planner=False)
    if not options.agents():
        raise UsageError("a crew of nobody does nothing", "liza up --coders 1")
    if options.terminal:
        tmux.require_tmux()
    layout.refuse_damaged(crew, crew.board.read(), options.agents())
    programs = _check_programs(crew, options)
    wanted = [agent for agent in options.agents() if not crew.is_supervised(agent)]
    if not wanted:
        raise Refused(f"{', '.join(options.agents())} run already", "liza status")
    if options.exit_when_done and options.detached:
        raise UsageError(
            "--exit-when-done is for a crew in this terminal, and -d leaves none", "liza up --exit-when-done"
        )
    if options.exit_when_done and is_crew_done(crew.board.read(), options.planners > 0):
        return _report_already_done(crew, say)
    free = (programs[agent] for agent in wanted)
    feed = Feed(say, crew.clock.now)
    try:
        for freed in draft_specs.release_drafts(crew):
            feed(LIZA, freed)
        _warn_unconfined(crew.board.read().config.permissions, free, feed)
        if options.detached:
            return _start_detached(crew, wanted, options, feed)
        return foreground.run_foreground(crew, wanted, options, programs, feed)
    finally:
        feed.close(PRINT_LIMIT)


def _report_already_done(crew: Crew, say: PrintTimedLine) -> int:
    say(LIZA, foreground.done_message(crew, crew.board.read()), crew.clock.now())
    return 0


def _warn_unconfined(permissions: str, programs: Iterable[Preset], say: PrintLine) -> None:
    """A person who asked for confined agents is told of programs that cannot be."""
    if permissions == "confined":
        for name in dict.fromkeys(one.name for one in programs if not one.has_confinement):
            say("", f"{name}: {UNCONFINED_WARNING}")


def _check_programs(crew: Crew, options: UpOptions) -> dict[str, Preset]:
    """A program that is not there, or a branch, stops `up` at once, and not in the third supervisor's log. What each
    agent runs."""
    table = preset_table.load_presets(crew.paths)
    state = crew.board.read()
    drift.require_integration(crew, state)
    config = state.config
    for who in options.programs:
        if not any(who in (agent, role_of(agent)) for agent in options.agents()):
            raise UsageError(f"--program {who}=…: the crew has none ({', '.join(options.agents())})", "liza up --help")
    programs = {}
    for agent in options.agents():
        chosen = preset_table.choose_program(
            options.program_of(agent), os.environ, role_of(agent), config, table
        ).preset
        preset_table.require_executable(chosen)
        programs[agent] = chosen
    return programs


def _start_detached(crew: Crew, agents: Sequence[str], options: UpOptions, say: PrintLine) -> int:
    """Start them, and come back once each is at work or has ended; 1 where one has."""
    heard: queue.Queue[Any] = queue.Queue()
    fates: list[bool] = []
    with events.watch(crew.paths, (wake_up.wake_directory(crew.paths),)) as watch:
        watch.subscribe(heard)
        begun = [_StartingSupervisor.launch(crew, agent, options) for agent in agents]
        for one in begun:
            threading.Thread(target=lambda child=one.child: heard.put(child.wait()), daemon=True).start()
        end = time.monotonic() + START_LIMIT
        while begun:
            for one in tuple(begun):
                fate = one.start_result(time.monotonic() >= end)
                if fate is not None:
                    fates.append(fate[0])
                    say(one.agent, fate[1])
                    begun.remove(one)
            with suppress(queue.Empty):
                heard.get(timeout=max(0.0, end - time.monotonic()) if begun else 0.0)
    return int(not all(fates))


@dataclass(frozen=True)
class _StartingSupervisor:
    """A supervisor that was started, and what was there before it: when its agent rang last, how long its log was."""

    crew: Crew
    agent: str
    child: subprocess.Popen[str]
    last_wake_up: int | None
    log: Path
    log_size: int

    @classmethod
    def launch(cls, crew: Crew, agent: str, options: UpOptions) -> _StartingSupervisor:
        log = supervisor_log(crew, agent)
        rung, length = wake_up.last_wake(crew.paths, agent), log.stat().st_size if log.exists() else 0
        return cls(crew, agent, start_supervisor(crew, agent, options), rung, log, length)

    def start_result(self, late: bool) -> tuple[bool, str] | None:
        """Whether it is at work, and that in words; None while that is open, which it no longer is when it is late."""
        if self.child.poll() is not None:
            return False, f"ended at once: {self._last_output()}"
        if self._is_at_work() or (late and self.crew.is_supervised(self.agent)):
            return True, f"started; liza logs {self.agent} -f"
        return (False, f"not at work after {START_LIMIT:g} s; less {self.log}") if late else None

    def _is_at_work(self) -> bool:
        """It rings when it has settled what the dead left, and once more when it has let go of its lock."""
        return wake_up.last_wake(self.crew.paths, self.agent) != self.last_wake_up and self.crew.is_supervised(
            self.agent
        )

    def _last_output(self) -> str:
        """What it said before it ended, with the next command, if it named one."""
        with self.log.open("rb") as file:
            file.seek(self.log_size)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        if not lines:
            return f"it said nothing, exit {self.child.returncode}"
        step = f" ({lines.pop().strip()})" if len(lines) > 1 and lines[-1].startswith("  next: ") else ""
        return lines[-1].removeprefix("liza-agent: ") + step
