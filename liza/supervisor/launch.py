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
from liza.programs.session.run_directory import RunDir, RunRecord, list_runs
from liza.programs.terminal import tmux
from liza.programs.usage import usage_report
from liza.repo.runner import FALLBACK_IDENTITY
from liza.repo.slots import slot_setup
from liza.rules.errors import NotOwner, Refused
from liza.rules.model import State
from liza.rules.paths import agent_of
from liza.rules.reports import ref_moves
from liza.rules.sessions.decide import CurrentWork, find_current_work
from liza.rules.tasks import claims
from liza.supervisor.worktree_files import LaunchInputs, WorktreeFiles
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
        self.notify = say
        self.worktree_files = WorktreeFiles(crew, preset, say)

    def start(self, run: str) -> session_process.RunningSession | session_process.StartFailed | SetUpDue:
        """Start the first session of ``run``. Raises NotYours where the run holds nothing any more, LizaError else."""
        state = self.crew.board.read()
        held = find_current_work(state, agent_of(run))
        if held is None or held.run != run:
            raise NotOwner(f"{run} holds nothing any more", f"liza agents {agent_of(run)}")
        slot = self._prepare_worktree(state, held)
        due = self._find_due_set_up(state, run, slot)
        if due is not None:
            return due
        directory = self.crew.run_dir(run)
        place = self.crew.paths.slot(slot)
        self._kill_orphans(agent_of(run))
        directory.create(self._run_record(state, held, place))
        crash_points.point("launch", "recorded")
        # What was to begin an earlier session, and never did, would begin this one a second time.
        inbox.withdraw_messages(self.crew.paths, agent_of(run), "liza")
        fitted = self.worktree_files.install(state, held, directory, place)
        crash_points.point("launch", "briefed")
        command = self._build_command(state, held, fitted, directory, place)
        argv = (str(preset_table.require_executable(self.preset)), *command.argv[1:])
        env = fitted.hooks.apply_to({**self._session_environment(held), **command.env})
        if not self.terminal:
            return session_process.start(directory.path, argv, place, env, command.stdin_text)
        if command_line.choose_carriers(self.preset, interactive=True).work is TextCarrier.TERMINAL:
            now = self.crew.clock.now()
            inbox.queue_message(self.crew.paths, agent_of(run), fitted.prompt, "liza", now, "startup")
        return tmux.start(directory.path, argv, place, env)

    def _kill_orphans(self, agent: str) -> None:
        """An agent has one session. One whose directory somebody took away is seen by nobody else. Raises Refused."""
        strays = tuple(processes.iter_agent_pids(agent, self.crew.paths.root))
        if not strays:
            return
        self.notify(f"ending what a session of {agent} left that nobody knew of: {', '.join(map(str, strays))}")
        if left := processes.kill_all(lambda: processes.iter_agent_pids(agent, self.crew.paths.root)):
            pids = ",".join(map(str, left))
            raise Refused(f"{agent} has processes that cannot be ended: {pids}", f"ps -fp {pids}")

    def _build_command(
        self, state: State, held: CurrentWork, fitted: LaunchInputs, directory: RunDir, place: Path
    ) -> command_line.ProgramCommand:
        how = command_line.select_launch_mode(self.preset, self.terminal)
        ground = command_line.SessionScope(
            permissions=state.config.permissions,
            cwd=place,
            run_dir=directory.path,
            writable_dirs=self._writable_directories(place),
            liza_path=liza_path(),
            test_command=state.config.integration_command or "",
        )
        how = replace(how, args=(*how.args, *fitted.hooks.args))
        return command_line.build_command(
            self.preset, how, fitted.prompt, ground, self._resume_arguments(state, held, directory)
        )

    def _resume_arguments(self, state: State, held: CurrentWork, directory: RunDir) -> tuple[str, ...]:
        """The words that go on with the conversation of the session before this one, where nobody's fault ended it and
        the program can; none else. Where that fails it is a crash, and the next session begins anew."""
        task = state.task(held.task) if held.task and held.kind == "work" else None
        if task is None or not claims.is_continuation(task) or not self.preset.resume.id:
            return ()
        earlier = [one for one in list_runs(self.crew.paths, directory.agent) if one != directory.run]
        before = self.crew.run_dir(earlier[-1]) if earlier else None
        record = before.read_record() if before is not None else None
        if before is None or record is None or (record.task, record.program) != (task.id, self.preset.name):
            return ()
        if not any(before.read_activity()):
            # Its model never answered: some programs keep no such conversation, and fail on its id.
            return ()
        turn = before.read_turn()
        known = (
            turn.session
            if turn is not None and turn.session
            else usage_report.read_session_id(self.preset.usage, before.output_path)
        )
        return command_line.build_resume_args(self.preset, known) if known and usage_report.is_id(known) else ()

    def rewrite_brief(self, agent: str) -> None:
        """Write the brief of the agent's living session again, with what came for it meanwhile. Raises LizaError."""
        state = self.crew.board.read()
        held = find_current_work(state, agent)
        if held is None:
            raise NotOwner(f"{agent} holds nothing any more", f"liza agents {agent}")
        directory = self.crew.run_dir(held.run)
        record = directory.read_record()
        if record is not None and record.worktree:
            self.worktree_files.rewrite_brief(state, held, directory, Path(record.worktree))

    def _writable_directories(self, place: Path) -> tuple[Path, ...]:
        """The directories besides its own that a session writes to. The work tree's own git directory is named for
        sandboxes that allow a directory and keep such a one below it read-only."""
        own = Path(self.crew.worktrees.slot_git(place.name).out("rev-parse", "--absolute-git-dir"))
        return self.crew.paths.liza, self.crew.paths.root / ".git", own

    def _prepare_worktree(self, state: State, held: CurrentWork) -> str:
        """The slot of what is held, standing where the run's work begins. Raises Missing, GitFailed."""
        worktrees = self.crew.worktrees
        agent = agent_of(held.run)
        if held.kind == "planning":
            tip = drift.require_integration(self.crew, state)
            worktrees.detach(agent, tip, held.run)
            return agent
        task = claims.get_task(state, held.task or "")
        if held.kind == "review":
            assert task.review_commit is not None
            worktrees.detach(agent, task.review_commit, held.run)
            return agent
        assert task.worktree is not None
        try:
            if not self.crew.paths.slot(task.worktree).is_dir():
                raise NotOwner(f"{task.worktree} is gone", "liza doctor --fix")
            worktrees.assign_run(task.worktree, task.id, held.run)
        except NotOwner:
            # The claim holds, and whoever made it died, or was kept from laying the worktree out.
            worktrees.prepare(task.worktree, task.id, held.run, salvage_as=held.run)
            worktrees.finish(task.worktree, task.id, held.run)
        return task.worktree

    def _find_due_set_up(self, state: State, run: str, slot: str) -> SetUpDue | None:
        setup, there = state.config.sandbox_setup, self.crew.worktrees.slot_git(slot)
        due = slot_setup.bring(self.crew.paths.root, there, state.config)
        return SetUpDue(run, slot, setup) if setup and due else None

    def mark_set_up_done(self, slot: str) -> None:
        """The set-up command ended well in ``slot``."""
        config = self.crew.board.read().config
        if config.sandbox_setup:
            there = self.crew.worktrees.slot_git(slot)
            slot_setup.mark_setup_done(there, config.sandbox_setup, config.sandbox_setup_files)

    def _run_record(self, state: State, held: CurrentWork, place: Path) -> RunRecord:
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
            commit=self.crew.worktrees.head_commit(place.name),
        )

    def _session_environment(self, held: CurrentWork) -> dict[str, str]:
        found = session_environment.compose_environment(
            self.preset,
            self.environ,
            run=held.run,
            task=held.task,
            root=self.crew.paths.root,
            liza=liza_path(),
            identity=self._git_identity(),
            keep=self.crew.board.read().config.environment,
        )
        name = found.get("GIT_COMMITTER_NAME")
        # By it git's own logs tell what a session did to a ref that is not its own.
        return {**found, "GIT_COMMITTER_NAME": ref_moves.session_author(name, held.run)} if name else found

    def _git_identity(self) -> dict[str, str]:
        """Who commits, in git's own variables; none where git knows nobody, and says so to whoever commits."""
        who = self.crew.git.identity()
        if who == FALLBACK_IDENTITY:
            return {}
        return {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in zip(("NAME", "EMAIL"), who, strict=True)
        }

    def set_up_environment(self, run: str) -> dict[str, str]:
        """The environment of the set-up: the session's, so that what it starts can be found and ended."""
        return session_environment.compose_environment(
            self.preset,
            self.environ,
            run=run,
            task=None,
            root=self.crew.paths.root,
            liza=liza_path(),
            keep=self.crew.board.read().config.environment,
        )
