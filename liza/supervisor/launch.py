"""Start a session: prepare the worktree, choose the conversation that it continues, start the program.

No other module starts one. `session_files.py` writes what the session finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from liza.api import identity
from liza.box import support
from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA, PromptPriority
from liza.crew.crew import Crew
from liza.git import boxed_git, hiding, slot_setup
from liza.git.git_config import git_dirs
from liza.git.rules.slot_states import slot_variables
from liza.git.runner import FALLBACK_IDENTITY
from liza.guards import guard_files
from liza.model import setting_limits
from liza.model.derived import CurrentWork, find_current_work
from liza.model.errors import LizaError, NotOwner, NotRegularFile, Refused
from liza.model.model import State, Task
from liza.model.narration import Detail
from liza.model.paths import agent_of, role_of, session_committer
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.conversation_log import find_conversation
from liza.programs.presets import command_line, preset_table
from liza.programs.presets.command_line import SidecarOrder, TextCarrier
from liza.programs.presets.preset import AcpSettings, LaunchMode, Preset
from liza.programs.rules.program_spec import parse_spec
from liza.programs.session import _session_socket, session_process
from liza.programs.session.run_directory import ReadyEvidence, RunDir, RunRecord
from liza.programs.session.session_process import SOCKET_VARIABLE, SessionVerbs, describe_verbs
from liza.programs.terminal import tmux
from liza.project import commands
from liza.project.commands import CommandBox
from liza.supervisor import foreign_review
from liza.supervisor.session_files import BoxOrder, LaunchInputs, SessionBox, WorktreeFiles, make_session_box
from liza.system import crash_points, processes
from liza.system.installation import liza_path, sidecar_argv
from liza.tasks import shared_code, task_branches
from liza.tasks.rules import claims, conversations, strangers
from liza.tasks.rules.conversations import ContinueConversation, EarlierSession, NewConversation
from liza.usage.account_choice import AccountChooser, SessionAccount
from liza.usage.run_account import account_of, config_dir_of, read_run_account


class SetUpDue(Value):
    """Result: the worktree is prepared, and the project's set-up command has to run in it first."""

    run: str
    slot: str
    command: str


def _with_conversation(
    record: RunRecord, chosen: ContinueConversation | NewConversation, *, has_account: bool
) -> RunRecord:
    """Return the record with whose conversation the run continues, or why it begins a new one."""
    if isinstance(chosen, ContinueConversation):
        return replace(record, has_account=has_account, continues=chosen.run)
    return replace(record, has_account=has_account, new_because=chosen.reason)


class Launcher:
    """Starts sessions of one agent with one program, each in a terminal of its own (``terminal``) or without one.

    ``environ`` is the supervisor's own environment; ``notify`` prints notices.
    """

    def __init__(
        self,
        crew: Crew,
        preset: Preset,
        environ: Mapping[str, str],
        notify: Callable[[str], None] = lambda text: None,
        *,
        terminal: bool = False,
    ) -> None:
        self.crew = crew
        self.terminal = terminal
        self.preset = preset
        self.environ = dict(environ)
        self.notify = notify
        self.worktree_files = WorktreeFiles(crew, preset, notify)
        self.accounts = AccountChooser(preset, environ, notify)
        self.conversations = ConversationFinder(crew, preset, notify, terminal=terminal)

    def start(self, run: str) -> liveness.RunningSession | session_process.StartFailed | SetUpDue:
        """Start the session of ``run``, or return SetUpDue if the set-up has to run first.

        Raises NotOwner if the run has no claim any more, NoAccount if none can be used now, LizaError for other
        failures.
        """
        state = self.crew.board.read()
        work = find_current_work(state, agent_of(run))
        if work is None or work.run != run:
            raise NotOwner(f"{run} has no claim any more", f"liza agents {agent_of(run)}")
        foreign = foreign_review.find_foreign(state, work)
        reader = None if foreign is None else self._require_reader(foreign, run)
        slot = self._prepare_worktree(state, work)
        set_up = self._find_due_set_up(state, run, slot) if foreign is None else None
        if set_up is not None:
            return set_up
        directory = self.crew.run_dir(run)
        worktree = self.crew.paths.slot(slot)
        self._kill_orphans(agent_of(run))
        chosen = self.conversations.choose(state, work, str(worktree))
        previous = self._continued_session(chosen)
        account = self.accounts.take(self.crew.clock.now(), account_of(previous) if previous is not None else None)
        conversation, chosen = self._read_conversation(previous, chosen, account)
        # Before anything that a session leaves: the next supervisor finds an unfinished start by this directory.
        box_program = support.choose_box_program(state.config.confinement)
        if box_program is None:
            self.crew.worktrees.leave_box(slot)
        record = replace(self.run_record(state, work, worktree), is_confined=box_program is not None)
        directory.create(_with_conversation(record, chosen, has_account=account.account is not None))
        self.crew.board.begin_session(run)
        self._tell_conversation(run, chosen)
        self._record_account(account, directory)
        crash_points.point("launch", "recorded")
        if foreign is not None and reader is not None:
            return self._start_reader(state, work, foreign, reader, directory, box_program, account)
        self.install_guards(state, directory)
        # A start prompt that an earlier session never received would start this one a second time.
        inbox.withdraw_messages(self.crew.paths, agent_of(run), LIZA)
        inputs = self.worktree_files.install(state, work, directory, worktree)
        crash_points.point("launch", "briefed")
        token = {identity.TOKEN_VARIABLE: identity.issue_token(directory, self.crew.clock.now())}
        acp = command_line.find_settings(self.preset, terminal=self.terminal)
        if acp is not None:
            env = account.apply_to({**self.session_environment(work, worktree), **acp.env}) | token
            executable = preset_table.require_executable(command_line.started_program(self.preset))
            box = self._make_box(state, work, directory, box_program, executable, env)
            self._order_sidecar(state, directory, worktree, acp, conversation, executable, box)
            sidecar, verbs = sidecar_argv(directory.path), self._describe_verbs(box, env)
            return session_process.start(directory.path, sidecar, worktree, env, inputs.prompt, verbs)
        resume_args = command_line.build_resume_args(self.preset, conversation) if conversation else ()
        is_confined = box_program is not None
        command = self.build_command(state, inputs, directory, worktree, resume_args, is_confined=is_confined)
        executable = preset_table.require_executable(self.preset)
        argv = (str(executable), *command.argv[1:])
        env = (
            account.apply_to(inputs.hooks.apply_to({**self.session_environment(work, worktree), **command.env})) | token
        )
        box = self._make_box(state, work, directory, box_program, executable, env)
        verbs = self._describe_verbs(box, env)
        if box is not None:
            argv, env = box.wrap(argv), box.complete(env)
        if not self.terminal:
            return session_process.start(directory.path, argv, worktree, env, command.stdin_text, verbs)
        if command_line.choose_carriers(self.preset, interactive=True).work is TextCarrier.TERMINAL:
            now = self.crew.clock.now()
            inbox.queue_message(self.crew.paths, agent_of(run), inputs.prompt, LIZA, now, PromptPriority.SYSTEM)
        return tmux.start(directory.path, argv, worktree, env, verbs)

    def _require_reader(self, task: Task, run: str) -> LaunchMode:
        """Return how the program starts without tools, for the review of what a stranger wrote.

        Raises NotOwner if that is not known: the review ends, and the board says why.
        """
        mode = foreign_review.find_mode(self.preset)
        if mode is not None:
            return mode
        reason, now = foreign_review.describe_missing_mode(self.preset), self.crew.clock.now()
        with self.crew.change(agent_of(run), "release review", task.id) as tx:
            tx.state = strangers.end_without_opinion(tx.state, task.id, run, reason, now)
        raise NotOwner(f"a person reviews {task.id}: {reason}", f"liza diff {task.id}")

    def _start_reader(
        self,
        state: State,
        work: CurrentWork,
        task: Task,
        mode: LaunchMode,
        directory: RunDir,
        box_program: str | None,
        account: SessionAccount,
    ) -> liveness.RunningSession | session_process.StartFailed:
        """Start a program without tools: no hooks, no file in the worktree, no token. Raises LizaError, OSError."""
        worktree = self.crew.paths.slot(agent_of(work.run))
        command = command_line.build_reader(self.preset, mode, foreign_review.compose_prompt(self.crew, task))
        directory.mark_ready(self.crew.clock.now(), ReadyEvidence.IN_PROMPT)
        executable = preset_table.require_executable(self.preset)
        argv = (str(executable), *command.argv[1:])
        env = account.apply_to({**self.session_environment(work, worktree), **command.env})
        box = self._make_box(state, work, directory, box_program, executable, env)
        verbs = self._describe_verbs(box, env)
        if box is not None:
            argv, env = box.wrap(argv), box.complete(env)
        return session_process.start(directory.path, argv, worktree, env, command.stdin_text, verbs)

    def _describe_verbs(self, box: SessionBox | None, env: Mapping[str, str]) -> SessionVerbs | None:
        """Return how the commands of a session run outside of it; None for a session whose commands run in it."""
        if box is None and not self.crew.host:
            return None
        is_confined = box is not None
        return describe_verbs(self.crew.paths, self.environ, env, self.preset.session_id_env, is_confined=is_confined)

    def _make_box(
        self,
        state: State,
        work: CurrentWork,
        directory: RunDir,
        program: str | None,
        executable: Path,
        env: Mapping[str, str],
    ) -> SessionBox | None:
        """Make the box of a session; None if it runs without one. Raises LizaError, OSError."""
        if program is None:
            return None
        record = directory.read_record()
        assert record is not None
        slot = Path(record.worktree).name
        order = BoxOrder(program, work, slot, executable, env, state.config)
        box = make_session_box(self.crew, self.preset, directory, order, self.notify)
        crash_points.point("launch", "boxed")
        return box

    def _continued_session(self, chosen: ContinueConversation | NewConversation) -> RunDir | None:
        """Return the session whose conversation is continued; None if a new one begins or its account is not known."""
        if isinstance(chosen, NewConversation):
            return None
        previous = self.crew.run_dir(chosen.run)
        return previous if self.conversations.is_account_known(previous) else None

    def _read_conversation(
        self, previous: RunDir | None, chosen: ContinueConversation | NewConversation, account: SessionAccount
    ) -> tuple[str | None, ContinueConversation | NewConversation]:
        """Return the id of the conversation to continue, and the decision with what the account and the id add."""
        if isinstance(chosen, NewConversation):
            return None, chosen
        if previous is None:
            return None, NewConversation(f"the account of {chosen.run} is not on record")
        # A conversation is in the configuration directory of its account: with another one it is not found.
        if config_dir_of(previous) != account.config_dir:
            return None, NewConversation(f"{chosen.run} had an account with another directory")
        conversation = find_conversation(previous, self.preset)
        return conversation, chosen if conversation else NewConversation(f"{chosen.run} reported no conversation")

    def _tell_conversation(self, run: str, chosen: ContinueConversation | NewConversation) -> None:
        if isinstance(chosen, ContinueConversation):
            self.notify(Detail(f"{run} continues the conversation of {chosen.run}"))
        elif chosen.reason:
            self.notify(Detail(f"{run} begins a new conversation: {chosen.reason}"))

    def _record_account(self, account: SessionAccount, directory: RunDir) -> None:
        """Record the account of the session outside of .liza. Without the record only a worker of the API gets none."""
        try:
            account.record(directory)
        except OSError as error:
            self.notify(f"! the account of {directory.run} cannot be recorded: {error}")

    def _order_sidecar(
        self,
        state: State,
        directory: RunDir,
        worktree: Path,
        acp: AcpSettings,
        conversation: str | None,
        executable: Path,
        box: SessionBox | None,
    ) -> None:
        """Write what the sidecar starts; its first prompt is the brief."""
        values = {"{cwd}": str(worktree), "{run}": str(directory.path), "{liza}": str(liza_path())}
        argv = (str(executable), *(command_line.substitute(word, values) for word in acp.args))
        order = SidecarOrder(
            program=self.preset.name,
            argv=argv if box is None else box.wrap(argv),
            cwd=str(worktree),
            acp=acp,
            env={} if box is None else dict(box.changes),
            conversation=conversation,
            silence_limit=float(state.config.answer_timeout),
        )
        command_line.write_order(directory.path, order)
        crash_points.point("launch", "ordered")

    def install_guards(self, state: State, directory: RunDir) -> None:
        """Write the guard rules of the session. Raises UsageError if the project's file of rules has an error."""
        home = Path(self.environ.get("HOME") or Path.home())
        loaded = guard_files.load_guards(self.crew.paths, home)
        for notice in loaded.notices:
            self.notify(notice)
        config = state.config
        tests, on_error = config.integration_command, config.guards.on_error
        guard_files.install_guards(directory, loaded, home, tests, on_error)

    def _kill_orphans(self, agent: str) -> None:
        """Kill processes of the agent that no run directory records: an agent has one session. Raises Refused if some
        survive.
        """
        orphans = tuple(processes.iter_agent_pids(agent, self.crew.paths.root))
        if not orphans:
            return
        self.notify(f"ending processes of {agent} that no session records: {', '.join(map(str, orphans))}")
        if survivors := processes.kill_all(lambda: processes.iter_agent_pids(agent, self.crew.paths.root)):
            pids = ",".join(map(str, survivors))
            raise Refused(f"{agent} has processes that cannot be ended: {pids}", f"ps -fp {pids}")

    def build_command(
        self,
        state: State,
        inputs: LaunchInputs,
        directory: RunDir,
        worktree: Path,
        resume_args: tuple[str, ...],
        *,
        is_confined: bool = False,
    ) -> command_line.ProgramCommand:
        """Return the command line of a session. ``resume_args`` are last before the prompt."""
        mode = command_line.select_launch_mode(self.preset, self.terminal)
        scope = command_line.SessionScope(
            permissions=setting_limits.choose_permissions(state.config.permissions, is_boxed=is_confined),
            cwd=worktree,
            run_dir=directory.path,
            writable_dirs=self._writable_directories(worktree, is_confined=is_confined),
            liza_path=liza_path(),
            test_command=state.config.integration_command or "",
        )
        box_args = self.preset.box_args if is_confined else ()
        mode = replace(mode, args=(*mode.args, *inputs.hooks.args, *box_args))
        return command_line.build_command(self.preset, mode, inputs.prompt, scope, resume_args)

    def rewrite_brief(self, agent: str) -> None:
        """Write the brief of the living session again, with the messages that arrived since. Raises LizaError."""
        state = self.crew.board.read()
        work = find_current_work(state, agent)
        if work is None:
            raise NotOwner(f"{agent} has no claim any more", f"liza agents {agent}")
        directory = self.crew.run_dir(work.run)
        record = directory.read_record()
        if record is not None and record.worktree:
            self.worktree_files.rewrite_brief(state, work, directory, Path(record.worktree))

    def _writable_directories(self, worktree: Path, *, is_confined: bool) -> tuple[Path, ...]:
        """Return the directories outside its worktree that a session writes to.

        The worktree's own git directory is named explicitly: some sandboxes allow .git and keep the directories below
        it read-only.
        """
        if is_confined:
            return self.crew.paths.liza, self.crew.paths.box(worktree.name).git
        git_dir, common = git_dirs(self.crew.worktrees.slot_git(worktree.name))
        return self.crew.paths.liza, common, git_dir.resolve()

    def _prepare_worktree(self, state: State, work: CurrentWork) -> str:
        """Return the slot of the work, checked out at the commit where the run starts. Raises Missing, GitFailed."""
        self.crew.update_pages()
        worktrees = self.crew.worktrees
        agent = agent_of(work.run)
        if work.kind == WorkKind.PLANNING:
            tip = shared_code.fetch_integration(self.crew, state)
            worktrees.detach(agent, tip, work.run)
            return agent
        task = claims.get_task(state, work.task or "")
        if work.kind == WorkKind.REVIEW:
            shared_code.fetch_reviewed(self.crew, task)
            commit = shared_code.choose_review_checkout(self.crew, task)
            if state.config.sandbox_setup or self.crew.run_dir(work.run).path.exists():
                worktrees.detach(agent, commit, work.run)
            else:
                # Nothing of this run has been started in the slot since the claim has emptied it.
                worktrees.detach_once(agent, commit, work.run)
            return agent
        assert task.worktree is not None
        self.crew.require_here(task)
        try:
            if not self.crew.paths.slot(task.worktree).is_dir():
                raise NotOwner(f"{task.worktree} is gone", "liza doctor --fix")
            worktrees.assign_run(task.worktree, task.id, work.run)
        except NotOwner:
            # The claim is valid, but its process died or failed before the worktree was prepared.
            task_branches.worktrees_for(self.crew, task).prepare(task.worktree, task.id, work.run, salvage_as=work.run)
            worktrees.finish(task.worktree, task.id, work.run)
        return task.worktree

    def _find_due_set_up(self, state: State, run: str, slot: str) -> SetUpDue | None:
        setup, git = state.config.sandbox_setup, self.crew.worktrees.slot_git(slot)
        is_due = slot_setup.bring(self.crew.paths.root, git, state.config)
        # A planner writes tasks. If it wants to run the tests, its brief has the command.
        if not setup or not is_due or role_of(agent_of(run)) == "planner":
            return None
        slot_setup.begin_setup(git)
        return SetUpDue(run, slot, setup)

    def open_set_up_box(self, set_up: SetUpDue) -> CommandBox | None:
        """Return the box of the set-up of a slot, None without confinement. Raises Missing, GitFailed, OSError."""
        config, git = self.crew.board.read().config, self.crew.worktrees.slot_git(set_up.slot)
        commands.begin_set_up(self.crew.paths, git, config)
        return commands.open_box(self.crew.paths, git, config)

    def mark_set_up_done(self, slot: str) -> None:
        """Record that the set-up command succeeded in ``slot``."""
        config = self.crew.board.read().config
        if config.sandbox_setup:
            git = self.crew.worktrees.slot_git(slot)
            commands.end_set_up(self.crew.paths, git, config)
            slot_setup.mark_setup_done(self.crew.paths.root, git, config)

    def run_record(self, state: State, work: CurrentWork, worktree: Path) -> RunRecord:
        """Return what the run is for, with the commit where it starts."""
        agent = agent_of(work.run)
        # The program spec with which the supervisor signed on, unless it names another program than this one.
        signed_on = state.agents[agent].program if agent in state.agents else None
        spec = signed_on if signed_on is not None and parse_spec(signed_on).name == self.preset.name else None
        return RunRecord(
            agent=agent,
            run=work.run,
            kind=work.kind,
            started=self.crew.clock.now(),
            task=work.task,
            program=self.preset.name,
            spec=spec,
            model=self.preset.chosen_model or None,
            worktree=str(worktree),
            commit=self.crew.worktrees.head_commit(worktree.name),
            session_id_env=self.preset.session_id_env,
        )

    def session_environment(self, work: CurrentWork, worktree: Path) -> dict[str, str]:
        """Return the environment of a session, without its hooks and its account."""
        config = self.crew.board.read().config
        composed = command_line.compose_environment(
            self.preset,
            self.environ,
            run=work.run,
            task=work.task,
            root=self.crew.paths.root,
            liza=liza_path(),
            identity=self._git_identity(),
            keep=config.environment,
            allowed=config.env_allow,
        )
        # The agent's own runs of the tests are as those of a gate. The row of a program takes precedence.
        environment = composed if self.preset.reads_ci else {**config.gate_variables, **composed}
        git_dir, _ = git_dirs(self.crew.worktrees.slot_git(worktree.name))
        key = boxed_git.key_settings(self.crew.git, environment.get("GIT_COMMITTER_EMAIL", ""))
        environment |= slot_variables(worktree.name) | hiding.session_variables(git_dir, key)
        if self.crew.host:
            # What connects to the database, such as PGPASSFILE, only the supervisor has.
            environment[SOCKET_VARIABLE] = str(self.crew.paths.run(work.run) / _session_socket.NAME)
        name = environment.get("GIT_COMMITTER_NAME")
        # With this name the commits and the reflogs show which session made them.
        return {**environment, "GIT_COMMITTER_NAME": session_committer(name, work.run)} if name else environment

    def _git_identity(self) -> dict[str, str]:
        """Return the committer's identity as git's environment variables.

        Empty if git has no identity: git then reports that itself at a commit.
        """
        identity = self.crew.git.identity()
        if identity == FALLBACK_IDENTITY:
            return {}
        return {
            f"GIT_{role}_{field}": value
            for role in ("AUTHOR", "COMMITTER")
            for field, value in zip(("NAME", "EMAIL"), identity, strict=True)
        }

    def set_up_environment(self, run: str, slot: str) -> dict[str, str]:
        """Return the environment of the set-up of a slot: the session's, so that its processes are found and ended."""
        config = self.crew.board.read().config
        environment = command_line.compose_environment(
            self.preset,
            self.environ,
            run=run,
            task=None,
            root=self.crew.paths.root,
            liza=liza_path(),
            keep=config.environment,
            allowed=config.env_allow,
        )
        return self.accounts.hide_credentials({**environment, **slot_variables(slot)})


class ConversationFinder:
    """Chooses the conversation of one agent's sessions with one program; ``notify`` prints notices."""

    def __init__(self, crew: Crew, preset: Preset, notify: Callable[[str], None], *, terminal: bool) -> None:
        self.crew = crew
        self.preset = preset
        self.notify = notify
        self.acp = command_line.find_settings(preset, terminal=terminal)

    def choose(self, state: State, work: CurrentWork, worktree: str) -> ContinueConversation | NewConversation:
        """Return which session's conversation ``work.run`` continues, or why it begins a new one.

        Reviews and planning always begin a new one.
        """
        task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
        if task is None:
            return NewConversation()
        runs = conversations.earlier_runs(task, work.run)[: conversations.MAX_RESUMED_FAILURES]
        next_session = EarlierSession(run=work.run, program=self.preset.name, worktree=worktree)
        earlier = [session for run in runs if (session := self._describe(run)) is not None]
        chosen = conversations.choose_conversation(task, next_session, earlier)
        if isinstance(chosen, NewConversation):
            return chosen
        obstacle = self._obstacle(self.crew.run_dir(chosen.run))
        return NewConversation(f"{chosen.run}: {obstacle}") if obstacle else chosen

    def is_account_known(self, previous: RunDir) -> bool:
        """Return whether the account of a session is known: that may have the conversation."""
        try:
            read_run_account(previous)
        except (LizaError, OSError) as error:
            self.notify(f"! {error}; its conversation is not continued")
            return False
        return True

    def _describe(self, run: str) -> EarlierSession | None:
        directory = self.crew.run_dir(run)
        try:
            record = directory.read_record()
            # Over ACP a refused conversation ends no session.
            has_worked = directory.has_sidecar() or any(directory.read_activity())
        except (LizaError, OSError, NotRegularFile) as error:
            # An agent may have replaced them.
            self.notify(f"! {error}; the conversation of {run} is not continued")
            return None
        if record is None:
            return None
        return EarlierSession(
            run=run,
            program=record.program,
            worktree=record.worktree,
            is_resumed=record.continues is not None,
            has_worked=has_worked,
        )

    def _obstacle(self, previous: RunDir) -> str:
        """Return why the program cannot continue the conversation of a session; empty if it can try.

        Over ACP a conversation that cannot be loaded costs nothing: the sidecar begins a new one. A command line fails.
        """
        if self.acp is not None:
            return "its conversation is too young to be loaded" if self._age(previous) < self.acp.load_min_age else ""
        if not self.preset.resume.id:
            return f"{self.preset.name} cannot resume a conversation"
        # If its model never answered: some programs do not store such a conversation, and fail on its id.
        return "" if any(previous.read_activity()) else "its model never answered"

    def _age(self, previous: RunDir) -> float:
        """Return the seconds since a session was started; 0 if that is not known."""
        record = previous.read_record()
        return 0.0 if record is None else (self.crew.clock.now() - record.started).total_seconds()
