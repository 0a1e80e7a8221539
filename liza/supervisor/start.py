"""up: start the supervisors of a crew, in this terminal or detached."""

from __future__ import annotations

import os
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from liza.alarms import confinement
from liza.api import api_server
from liza.box import support
from liza.crew import keeper_start, layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.git import integration_tip
from liza.hosts import host_start
from liza.merging import statement_writer
from liza.model import setting_limits
from liza.model.configuration import Config
from liza.model.errors import LizaError, Refused, UsageError, read_last_message
from liza.model.narration import LIZA
from liza.model.paths import Paths, role_of, sort_agents
from liza.model.value_classes import Value, replace
from liza.programs.presets import command_line, preset_table, program_choice
from liza.programs.presets.preset import UNCONFINED_WARNING, Preset
from liza.programs.presets.preset_table import UP_PROGRAM
from liza.programs.presets.program_choice import ProgramChoice
from liza.programs.rules import program_spec
from liza.programs.rules.program_spec import parse_spec
from liza.programs.terminal import tmux
from liza.supervisor import foreground
from liza.supervisor.crew_options import UpOptions, parse_names, parse_programs, start_supervisor, supervisor_log
from liza.supervisor.feed import Feed, PrintTimedLine, done_message, is_done
from liza.supervisor.foreground import PrintLine
from liza.system import file_growth
from liza.tasks import draft_specs

__all__ = ["UpOptions", "check_programs", "parse_names", "parse_programs", "up"]
ROLE_NAMES = {"planner": "planner", "coder": "coder", "code-reviewer": "reviewer"}
START_LIMIT = 60.0  # seconds for a detached supervisor to be ready
PRINT_LIMIT = 2.0  # seconds to print the last lines


def up(crew: Crew, options: UpOptions, say: PrintTimedLine) -> int:
    """Start the supervisors that do not run yet. In a terminal: wait until Ctrl+C, or until all have exited.

    Returns the worst of their exit codes. Raises Missing if a program is not installed, Refused if all run already.
    """
    require_person(crew, planner=False)
    if not options.agents():
        raise UsageError("the crew has 0 agents; it needs at least 1", "liza up --coders 1")
    if options.terminal:
        tmux.require_tmux()
    layout.refuse_damaged(crew.paths, crew.board.read(), options.agents())
    choices = check_programs(crew, options, f"{options.again} --program" if options.again else UP_PROGRAM)
    wanted = [agent for agent in options.agents() if not crew.is_supervised(agent)]
    if not wanted:
        raise Refused(f"already running: {', '.join(_with_hosts(crew, options.agents()))}", "liza status")
    if options.exit_when_done and options.detached:
        raise UsageError(
            "--exit-when-done needs a crew in this terminal; it cannot be used with -d", "liza up --exit-when-done"
        )
    if options.exit_when_done and is_done(crew.board.read(), options):
        return _report_already_done(crew, say)
    remember(crew, options)
    programs = {agent: choice.preset for agent, choice in choices.items()}
    free = (programs[agent] for agent in wanted)
    feed = Feed(say, crew.clock.now)
    try:
        for line in describe_choices({agent: choices[agent] for agent in wanted}):
            feed("", line)
        closed = setting_limits.describe_opening(crew.board.read().config, crew.clock.now())
        if closed is not None:
            feed("", closed)
        for freed in draft_specs.release_drafts(crew):
            feed(LIZA, freed)
        if crew.paths.board_address.exists():
            host_start.require_host(crew.paths)
        _start_server(crew, feed, verbose=options.verbose)
        _warn_unconfined(crew.board.read().config, free, feed)
        if options.detached:
            return _start_detached(crew, wanted, options, feed)
        code = foreground.run_foreground(crew, wanted, options, programs, feed)
        if options.exit_when_done:
            # The merger was stopped with the supervisors when the last task was merged, before it wrote the statement.
            statement_writer.complete_quietly(crew)
        return code
    finally:
        feed.close(PRINT_LIMIT)


def _with_hosts(crew: Crew, agents: Iterable[str]) -> list[str]:
    """Return the agents, each with its host if that is another one."""
    return [f"{agent} on {host}" if (host := crew.find_holder(agent)) else agent for agent in agents]


def _start_server(crew: Crew, say: PrintLine, *, verbose: bool) -> None:
    """Start the server of the worker API, and wait until it listens: the first session may need it. Say where
    it listens if ``verbose``, and why it does not; all else works without it."""
    missing = api_server.missing_packages()
    if missing:
        say("", f"the worker API is not served: {', '.join(missing)} is not installed; all else works")
        return
    reason = api_server.start_for_crew(crew)
    if reason is not None:
        say("", f"! the worker API cannot be served, work continues: {reason}")
    elif verbose:
        say("", f"worker API: .liza/run/api.sock and 127.0.0.1:{api_server.read_port(crew.paths.api_port)}")


def _report_already_done(crew: Crew, say: PrintTimedLine) -> int:
    say(LIZA, done_message(crew, crew.board.read()), crew.clock.now())
    return 0


def _warn_unconfined(config: Config, programs: Iterable[Preset], say: PrintLine) -> None:
    """Warn about programs that neither a box nor prompts confine, unless a person wants that."""
    names = (preset.name for preset in programs if support.is_unconfined(config, has_prompts=preset.has_prompts))
    for name in dict.fromkeys(names):
        say("", f"{name}: {UNCONFINED_WARNING}")


def add_model(crew: Crew | None, options: UpOptions, model: str, typed: str) -> UpOptions:
    """Return the options with this model for the coder and the reviewer, whatever program they run.

    ``crew`` is None before there is one. ``typed`` is the command before a program's name, for hints. Raises UsageError
    if an option names a model already.
    """
    paths = crew.paths if crew is not None else Paths(Path.cwd())
    table, config = preset_table.load_presets(paths), crew.board.read().config if crew is not None else Config()
    for spec in filter(None, (options.program, *options.programs.values())):
        if parse_spec(spec).model:
            raise UsageError(f"--program {spec} names a model, and so does --model", f"{typed} {shlex.quote(spec)}")
    if crew is None and not options.programs:
        choice = program_choice.choose_program(options.program, os.environ, "coder", config, table)
        return replace(options, program=program_spec.add_model(choice.spec, model))
    programs = {who: program_spec.add_model(spec, model) for who, spec in options.programs.items()}
    for role in ("coder", "code-reviewer"):
        choice = program_choice.choose_program(
            options.programs.get(role) or options.program, os.environ, role, config, table
        )
        programs[role] = program_spec.add_model(choice.spec, model)
    return replace(options, program=None, programs=programs)


def runs_coder(crew: Crew) -> bool:
    """Return whether the supervisor of a coder runs: such a crew takes new tasks by itself."""
    return any(role_of(agent) == "coder" and crew.is_supervised(agent) for agent in crew.board.read().agents)


def remember(crew: Crew, options: UpOptions) -> None:
    """Write the programs that a person has chosen to the board: the next bare `liza up` runs them, too."""
    if options.program is None and not options.programs:
        return
    for_all, chosen = options.program, dict(options.programs)
    if options.names and for_all is not None:
        # `up coder-2 --program …` is a choice for this agent, and not for all.
        chosen, for_all = dict.fromkeys(options.names, for_all) | chosen, None
    before = crew.board.read().config.programs
    after = program_choice.remember_programs(before, for_all, chosen)
    if after == before:
        return
    with crew.change(require_person(crew, planner=False), "config programs") as tx:
        config = tx.state.config
        after = program_choice.remember_programs(config.programs, for_all, chosen)
        tx.state = replace(tx.state, config=replace(config, programs=after))


def describe_choices(choices: Mapping[str, ProgramChoice]) -> list[str]:
    """Return which program and model each role runs, a line for each; its source unless it is the default."""
    agents_of: dict[tuple[str, str], list[str]] = {}
    for agent in sort_agents(choices):
        choice = choices[agent]
        agents_of.setdefault((choice.spec, "" if choice.is_default else choice.source), []).append(agent)
    lines = []
    for (spec, source), agents in agents_of.items():
        parts = parse_spec(spec)
        model = f", model {parts.model}" if parts.model else ""
        where = f" ({source})" if source else ""
        lines.append(f"{_describe_agents(agents, choices)}: {replace(parts, model='')}{model}{where}")
    return lines


def _describe_agents(agents: Sequence[str], choices: Mapping[str, ProgramChoice]) -> str:
    """Return the roles of the agents, and their ids where a role has other agents, too."""
    names = []
    for agent in agents:
        role = role_of(agent)
        has_all = all(other in agents for other in choices if role_of(other) == role)
        names.append(ROLE_NAMES[role] if has_all else agent)
    return ", ".join(dict.fromkeys(names))


def check_programs(crew: Crew, options: UpOptions, typed: str = UP_PROGRAM) -> dict[str, ProgramChoice]:
    """Return the program of each agent. Raises Missing here, not in a supervisor's log, if a program or integration is
    missing. ``typed`` is the command before a program's name, for hints."""
    table = preset_table.load_presets(crew.paths)
    state = crew.board.read()
    integration_tip.require_integration(crew.git, state)
    config = state.config
    confinement.check_support(crew.paths, config)
    for target in options.programs:
        if not any(target in (agent, role_of(agent)) for agent in options.agents()):
            raise UsageError(
                f"--program {target}=…: the crew has none ({', '.join(options.agents())})", "liza up --help"
            )
    programs = {}
    for agent in options.agents():
        choice = program_choice.choose_program(options.program_of(agent), os.environ, agent, config, table)
        started = command_line.started_program(choice.preset, terminal=options.terminal)
        program_choice.require_choice(choice, started, table, typed)
        programs[agent] = choice
    return programs


def _start_detached(crew: Crew, agents: Sequence[str], options: UpOptions, say: PrintLine) -> int:
    """Start the supervisors and wait until each is ready or has exited; return 1 if one has exited."""
    events_queue: queue.Queue[Any] = queue.Queue()
    results: list[bool] = []
    with crew.board.watch((file_growth.wake_directory(crew.paths),)) as watch:
        watch.subscribe(events_queue)
        starting = [_StartingSupervisor.launch(crew, agent, options) for agent in agents]
        for supervisor in starting:
            threading.Thread(target=lambda child=supervisor.child: events_queue.put(child.wait()), daemon=True).start()
        end = time.monotonic() + START_LIMIT
        while starting:
            for supervisor in tuple(starting):
                result = supervisor.start_result(time.monotonic() >= end)
                if result is not None:
                    results.append(result[0])
                    say(supervisor.agent, result[1])
                    starting.remove(supervisor)
            with suppress(queue.Empty):
                events_queue.get(timeout=max(0.0, end - time.monotonic()) if starting else 0.0)
    _start_keeper(crew, say)
    return int(not all(results))


def _start_keeper(crew: Crew, say: PrintLine) -> None:
    """Start the process that starts killed supervisors again, and sends alarms. All else works without it."""
    try:
        keeper_start.start_keeper(crew)
    except (LizaError, OSError) as error:
        say("", f"! killed supervisors are not started again, and alarms are not sent: {error}; next: liza status")


class _StartingSupervisor(Value):
    """A started supervisor, with its agent's last wake-up and the size of its log in bytes before the start."""

    crew: Crew
    agent: str
    child: subprocess.Popen[str]
    last_wake_up: int | None
    log: Path
    log_size: int

    @classmethod
    def launch(cls, crew: Crew, agent: str, options: UpOptions) -> _StartingSupervisor:
        log = supervisor_log(crew.paths, agent)
        last_wake, log_size = file_growth.last_wake(crew.paths, agent), log.stat().st_size if log.exists() else 0
        return cls(crew, agent, start_supervisor(crew.paths, agent, options), last_wake, log, log_size)

    def start_result(self, late: bool) -> tuple[bool, str] | None:
        """Whether the supervisor is ready, and a description; None while that is not known yet, unless ``late``."""
        if self.child.poll() is not None:
            return False, f"exited at once: {self._last_output()}"
        if self._is_at_work() or (late and self.crew.is_supervised_here(self.agent)):
            return True, f"started; liza logs {self.agent} -f"
        return (False, f"not ready after {START_LIMIT:g} s; less {self.log}") if late else None

    def _is_at_work(self) -> bool:
        """Whether it has written its wake-up file and holds its lock.

        It writes the file after its recovery at the start, and again after it has released its lock at exit.
        """
        return file_growth.last_wake(self.crew.paths, self.agent) != self.last_wake_up and self.crew.is_supervised_here(
            self.agent
        )

    def _last_output(self) -> str:
        """Last line of its output, with the next command if it printed one."""
        with self.log.open("rb") as file:
            file.seek(self.log_size)
            message, hint = read_last_message("liza-agent", file.read().decode(errors="replace"))
        if not message:
            return f"no output, exit status {self.child.returncode}"
        return f"{message} (next: {hint})" if hint else message
