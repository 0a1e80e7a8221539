"""The one start path: lay the worktree out, write the brief, then start the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.liza_path import liza_path
from liza.programs.messages import inbox
from liza.programs.presets import command_line, preset_table, session_environment
from liza.programs.presets.command_line import TextCarrier
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, RunRecord, runs_of
from liza.programs.terminal import tmux
from liza.programs.usage import usage_report
from liza.repo.runner import NOBODY
from liza.repo.slots import slot_setup
from liza.rules.errors import NotYours, Refused
from liza.rules.model import State
from liza.rules.paths import agent_of
from liza.rules.reports import ref_moves
from liza.rules.sessions.decide import Holding, holding
from liza.rules.tasks import claims
from liza.supervisor.worktree_files import Fitted, Outfit
from liza.system import crash_points, processes


@dataclass(frozen=True)
class SetUpDue:
    """The worktree is laid out, and the project's set-up has to run in it first."""

    run: str
    slot: str
    command: str


class Launcher:
    """Starts sessions of one agent with one program, each in a ``terminal`` of its own or without one.

    ``environ`` is the supervisor's own; ``say`` hears notices.
    """

    def __init__(
        self,
        crew: Crew,
        preset: Preset,
        environ: Mapping[str, str],
        say: Callable[[str], None] = lambda text: None,
        *,
        terminal: bool = False,
    ) -> None:
        self.crew = crew
        self.terminal = terminal
        self.preset = preset
        self.environ = dict(environ)
        self.say = say
        self.outfit = Outfit(crew, preset, say)

    def start(self, run: str) -> session_process.Living | session_process.NotStarted | SetUpDue:
        """Start the first session of ``run``. Raises NotYours where the run holds nothing any more, LizaError else."""
        state = self.crew.board.read()
        held = holding(state, agent_of(run))
        if held is None or held.run != run:
            raise NotYours(f"{run} holds nothing any more", f"liza agents {agent_of(run)}")
        slot = self._lay_out(state, held)
        due = self._set_up_due(state, run, slot)
        if due is not None:
            return due
        directory = self.crew.run_dir(run)
        place = self.crew.paths.slot(slot)
        self._end_what_lives(agent_of(run))
        directory.create(self._record(state, held, place))
        crash_points.point("launch", "recorded")
        # What was to begin an earlier session, and never did, would begin this one a second time.
        inbox.withdraw(self.crew.paths, agent_of(run), "liza")
        fitted = self.outfit.fit(state, held, directory, place)
        crash_points.point("launch", "briefed")
        command = self._command(state, held, fitted, directory, place)
        argv = (str(preset_table.need(self.preset)), *command.argv[1:])
        env = fitted.hooks.over({**self._environment(held), **command.env})
        if not self.terminal:
            return session_process.start(directory.path, argv, place, env, command.stdin_text)
        if command_line.plan(self.preset, interactive=True).work is TextCarrier.TERMINAL:
            now = self.crew.clock.now()
            inbox.put(self.crew.paths, agent_of(run), fitted.prompt, "liza", now, "startup")
        return tmux.start(directory.path, argv, place, env)

    def _end_what_lives(self, agent: str) -> None:
        """An agent has one session. One whose directory somebody took away is seen by nobody else. Raises Refused."""
        strays = tuple(processes.each_of_agent(agent, self.crew.paths.root))
        if not strays:
            return
        self.say(f"ending what a session of {agent} left that nobody knew of: {', '.join(map(str, strays))}")
        if left := processes.kill_all(lambda: processes.each_of_agent(agent, self.crew.paths.root)):
            pids = ",".join(map(str, left))
            raise Refused(f"{agent} has processes that cannot be ended: {pids}", f"ps -fp {pids}")

    def _command(
        self, state: State, held: Holding, fitted: Fitted, directory: RunDir, place: Path
    ) -> command_line.ProgramCommand:
        how = command_line.mode(self.preset, self.terminal)
        ground = command_line.SessionScope(
            permissions=state.config.permissions,
            cwd=place,
            run=directory.path,
            writes=self._writable(place),
            liza=liza_path(),
            tests=state.config.integration_command or "",
        )
        how = replace(how, args=(*how.args, *fitted.hooks.args))
        return command_line.command(self.preset, how, fitted.prompt, ground, self._conversation(state, held, directory))

    def _conversation(self, state: State, held: Holding, directory: RunDir) -> tuple[str, ...]:
        """The words that go on with the conversation of the session before this one, where nobody's fault ended it and
        the program can; none else. Where that fails it is a crash, and the next session begins anew."""
        task = state.task(held.task) if held.task and held.kind == "work" else None
        if task is None or not claims.goes_on(task) or not self.preset.resume.id:
            return ()
        earlier = [one for one in runs_of(self.crew.paths, directory.agent) if one != directory.run]
        before = self.crew.run_dir(earlier[-1]) if earlier else None
        record = before.record() if before is not None else None
        if before is None or record is None or (record.task, record.program) != (task.id, self.preset.name):
            return ()
        if not any(before.has_spoken()):
            # Its model never answered: some programs keep no such conversation, and fail on its id.
            return ()
        turn = before.turn()
        known = (
            turn.session
            if turn is not None and turn.session
            else usage_report.session_id(self.preset.usage, before.output)
        )
        return command_line.resumed(self.preset, known) if known and usage_report.is_id(known) else ()

    def brief_again(self, agent: str) -> None:
        """Write the brief of the agent's living session again, with what came for it meanwhile. Raises LizaError."""
        state = self.crew.board.read()
        held = holding(state, agent)
        if held is None:
            raise NotYours(f"{agent} holds nothing any more", f"liza agents {agent}")
        directory = self.crew.run_dir(held.run)
        record = directory.record()
        if record is not None and record.worktree:
            self.outfit.brief_again(state, held, directory, Path(record.worktree))

    def _writable(self, place: Path) -> tuple[Path, ...]:
        """The directories besides its own that a session writes to. The work tree's own git directory is named for
        sandboxes that allow a directory and keep such a one below it read-only."""
        own = Path(self.crew.worktrees.slot_git(place.name).out("rev-parse", "--absolute-git-dir"))
        return self.crew.paths.liza, self.crew.paths.root / ".git", own

    def _lay_out(self, state: State, held: Holding) -> str:
        """The slot of what is held, standing where the run's work begins. Raises Missing, GitFailed."""
        worktrees = self.crew.worktrees
        agent = agent_of(held.run)
        if held.kind == "planning":
            tip = drift.need_integration(self.crew, state)
            worktrees.detach(agent, tip, held.run)
            return agent
        task = claims.find(state, held.task or "")
        if held.kind == "review":
            assert task.review_commit is not None
            worktrees.detach(agent, task.review_commit, held.run)
            return agent
        assert task.worktree is not None
        try:
            if not self.crew.paths.slot(task.worktree).is_dir():
                raise NotYours(f"{task.worktree} is gone", "liza doctor --fix")
            worktrees.own(task.worktree, task.id, held.run)
        except NotYours:
            # The claim holds, and whoever made it died, or was kept from laying the worktree out.
            worktrees.prepare(task.worktree, task.id, held.run, salvage_as=held.run)
            worktrees.finish(task.worktree, task.id, held.run)
        return task.worktree

    def _set_up_due(self, state: State, run: str, slot: str) -> SetUpDue | None:
        setup, there = state.config.sandbox_setup, self.crew.worktrees.slot_git(slot)
        due = slot_setup.bring(self.crew.paths.root, there, state.config)
        return SetUpDue(run, slot, setup) if setup and due else None

    def set_up_done(self, slot: str) -> None:
        """The set-up command ended well in ``slot``."""
        config = self.crew.board.read().config
        if config.sandbox_setup:
            there = self.crew.worktrees.slot_git(slot)
            slot_setup.mark_setup_done(there, config.sandbox_setup, config.sandbox_setup_files)

    def _record(self, state: State, held: Holding, place: Path) -> RunRecord:
        agent = agent_of(held.run)
        # As its supervisor signed on; another program's name there is not what runs here.
        signed = state.agents[agent].program if agent in state.agents else None
        spec = signed if signed is not None and signed.partition(":")[0].strip() == self.preset.name else None
        return RunRecord(
            agent=agent,
            run=held.run,
            kind=held.kind,
            started=self.crew.clock.now(),
            task=held.task,
            program=self.preset.name,
            spec=spec,
            worktree=str(place),
            commit=self.crew.worktrees.head(place.name),
        )

    def _environment(self, held: Holding) -> dict[str, str]:
        found = session_environment.compose(
            self.preset,
            self.environ,
            run=held.run,
            task=held.task,
            root=self.crew.paths.root,
            liza=liza_path(),
            identity=self._identity(),
            keep=self.crew.board.read().config.environment,
        )
        name = found.get("GIT_COMMITTER_NAME")
        # By it git's own logs tell what a session did to a ref that is not its own.
        return {**found, "GIT_COMMITTER_NAME": ref_moves.marked(name, held.run)} if name else found

    def _identity(self) -> dict[str, str]:
        """Who commits, in git's own variables; none where git knows nobody, and says so to whoever commits."""
        who = self.crew.git.identity()
        if who == NOBODY:
            return {}
        return {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in zip(("NAME", "EMAIL"), who, strict=True)
        }

    def tool_environment(self, run: str) -> dict[str, str]:
        """The environment of the set-up: the session's, so that what it starts can be found and ended."""
        return session_environment.compose(
            self.preset,
            self.environ,
            run=run,
            task=None,
            root=self.crew.paths.root,
            liza=liza_path(),
            keep=self.crew.board.read().config.environment,
        )
