"""Start a session: prepare the worktree and its box, write the brief, start the program.

No other module starts one. The box of a session has its git directory, its copies of `.liza` and the private state of
its program.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.api import identity
from liza.box import slot_directories, support
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import SESSION_SOCKET
from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA, PromptPriority
from liza.crew.crew import Crew
from liza.git import boxed_git, hiding, integration_tip, run_git, slot_setup
from liza.git.git_config import git_dirs
from liza.git.rules.slot_states import slot_variables
from liza.git.runner import FALLBACK_IDENTITY
from liza.guards import guard_files
from liza.model import setting_limits
from liza.model.configuration import Config
from liza.model.derived import CurrentWork, find_current_work
from liza.model.errors import NotOwner, Refused
from liza.model.model import State
from liza.model.narration import Detail
from liza.model.paths import BoxPaths, agent_of, session_committer
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.conversation_log import find_conversation
from liza.programs.hooks.hook_install import merge_objects
from liza.programs.presets import acp_session, command_line, preset_table
from liza.programs.presets.acp_session import SidecarOrder
from liza.programs.presets.command_line import TextCarrier
from liza.programs.presets.preset import AcpSettings, Preset
from liza.programs.session import _session_socket, private_state, session_process
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.session.session_process import SessionVerbs, describe_verbs
from liza.programs.terminal import tmux
from liza.project import commands
from liza.project.commands import BoxUse, CommandBox, build_box
from liza.supervisor.conversation import ConversationFinder
from liza.supervisor.worktree_files import LaunchInputs, WorktreeFiles
from liza.system import ancestors, atomic, crash_points, processes, untrusted_files
from liza.system.installation import liza_path, sidecar_argv
from liza.tasks import task_branches
from liza.tasks.rules import claims
from liza.tasks.rules.conversations import ContinueConversation, NewConversation
from liza.usage.account_choice import AccountChooser, SessionAccount
from liza.usage.run_account import account_of, config_dir_of


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
        slot = self._prepare_worktree(state, work)
        set_up = self._find_due_set_up(state, run, slot)
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
        self._tell_conversation(run, chosen)
        self._record_account(account, directory)
        crash_points.point("launch", "recorded")
        self.install_guards(state, directory)
        # A start prompt that an earlier session never received would start this one a second time.
        inbox.withdraw_messages(self.crew.paths, agent_of(run), LIZA)
        inputs = self.worktree_files.install(state, work, directory, worktree)
        crash_points.point("launch", "briefed")
        token = {identity.TOKEN_VARIABLE: identity.issue_token(directory, self.crew.clock.now())}
        acp = acp_session.find_settings(self.preset, terminal=self.terminal)
        if acp is not None:
            env = account.apply_to({**self.session_environment(work, worktree), **acp.env}) | token
            executable = preset_table.require_executable(acp_session.started_program(self.preset))
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

    def _describe_verbs(self, box: SessionBox | None, env: Mapping[str, str]) -> SessionVerbs | None:
        """Return how the commands of a session in a box run; None for a session without one."""
        if box is None:
            return None
        return describe_verbs(self.crew.paths, self.environ, env, self.preset.session_id_env)

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
        acp_session.write_order(directory.path, order)
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
        worktrees = self.crew.worktrees
        agent = agent_of(work.run)
        if work.kind == WorkKind.PLANNING:
            tip = integration_tip.require_integration(self.crew.git, state)
            worktrees.detach(agent, tip, work.run)
            return agent
        task = claims.get_task(state, work.task or "")
        if work.kind == WorkKind.REVIEW:
            assert task.review_commit is not None
            if state.config.sandbox_setup or self.crew.run_dir(work.run).path.exists():
                worktrees.detach(agent, task.review_commit, work.run)
            else:
                # Nothing of this run has been started in the slot since the claim has emptied it.
                worktrees.detach_once(agent, task.review_commit, work.run)
            return agent
        assert task.worktree is not None
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
        if not setup or not is_due:
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
        spec = signed_on if signed_on is not None and signed_on.partition(":")[0].strip() == self.preset.name else None
        return RunRecord(
            agent=agent,
            run=work.run,
            kind=work.kind,
            started=self.crew.clock.now(),
            task=work.task,
            program=self.preset.name,
            spec=spec,
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


OWNER_FILE: Final = "owner"
"""File beside the private directories of a slot, which no box can write: whose conversations they have."""
SHOWN_FILES: Final = ("assignment.md", "prompt", "block.md", "beacon.json", "hooks")
"""What a box has of the directory of its run, as copies."""
SHOWN_DIRECTORIES: Final = ("contracts", "specs")
"""Directories of `.liza` that a box can read."""


class SessionBox(Value):
    """The box of one session. ``changes``: the variables that its program gets beside the session's; None: removed."""

    box: Box
    changes: Mapping[str, str | None]

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that runs the program in the box."""
        return tuple(self.box.wrap(argv))

    def complete(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program in the box."""
        return {name: value for name, value in {**env, **self.changes}.items() if value is not None}


class BoxOrder(Value):
    """What a box is made for. ``program``: bubblewrap; ``executable``: that of the agent program; ``env``: the
    environment that the session would have without a box."""

    program: str
    work: CurrentWork
    slot: str
    executable: Path
    env: Mapping[str, str]
    config: Config


def make_session_box(
    crew: Crew, preset: Preset, directory: RunDir, order: BoxOrder, notify: Callable[[str], None]
) -> SessionBox:
    """Make what the box of a session contains, and return it. No process of the slot runs. Raises LizaError,
    OSError."""
    home = Path(order.env.get("HOME") or Path.home())
    own = slot_directories.prepare_directories(crew.paths, order.slot, home)
    begin_ownership(own, order.work)
    git = crew.worktrees.slot_git(order.slot)
    run_git.make_run_git(git, own, directory.run, salvages_of=order.work.task or "")
    _fill_liza(crew, own, directory, preset)
    directories = private_state.list_directories(preset, own, order.env, home)
    private_state.bring_state(directories, own.program_state(preset.name), directory, notify)
    mounts = (
        *(Mount(MountKind.READ_ONLY, crew.paths.liza / name) for name in SHOWN_DIRECTORIES if _is_there(crew, name)),
        *private_state.state_mounts(directories),
        *boxed_git.signing_mounts(git, order.env, home),
    )
    files = (order.executable, *_list_files((*preset.args, *(preset.acp.args if preset.acp is not None else ()))))
    use = BoxUse(order.program, order.env, home, files, mounts, directory.path / _session_socket.NAME)
    boxed = build_box(crew.paths, git, order.config.shared, use)
    env = {
        **boxed.environment(order.env),
        **private_state.state_variables(directories),
        **preset.box_env,
        ancestors.CONFINED: "yes",
        "LIZA_COMMAND_SERVER": str(SESSION_SOCKET),
        "LIZA_API": str(SESSION_SOCKET),
    }
    names = dict.fromkeys([*order.env, *env])
    return SessionBox(boxed.box, {name: env.get(name) for name in names if env.get(name) != order.env.get(name)})


def _list_files(words: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that words of a command line name, such as the script of an interpreter."""
    return tuple(Path(word) for word in words if word.startswith("/") and Path(word).is_file())


def _is_there(crew: Crew, name: str) -> bool:
    return (crew.paths.liza / name).is_dir()


def begin_ownership(own: BoxPaths, work: CurrentWork) -> None:
    """Remove the conversations of an earlier owner of the slot: of another task, or of an earlier review.

    Its git directory is replaced when the next one is made; the repositories of submodules in it stay.
    """
    owner = work.task if work.kind is WorkKind.WORK and work.task else work.run
    path = own.directory / OWNER_FILE
    if untrusted_files.read_if_exists(path) == owner.encode():
        return
    slot_directories.remove_tree(own.state)
    own.state.mkdir(mode=0o700)
    atomic.write(path, owner.encode(), sync=False)


def _fill_liza(crew: Crew, own: BoxPaths, directory: RunDir, preset: Preset) -> None:
    """Write what a box has of `.liza`: copies of the board, of the assignment and of the hooks. Raises OSError."""
    slot_directories.remove_tree(own.liza)
    inside = own.liza / directory.path.relative_to(crew.paths.liza)
    inside.mkdir(mode=0o700, parents=True)
    shutil.copyfile(crew.paths.state, own.liza / crew.paths.state.name)
    for name in SHOWN_FILES:
        with suppress(FileNotFoundError):
            source = directory.path / name
            if source.is_dir():
                shutil.copytree(source, inside / name)
            else:
                shutil.copyfile(source, inside / name)
    for name, settings in preset.box_settings.items():
        path = inside / "hooks" / name
        if path.is_file():
            merged = merge_objects(json.loads(path.read_bytes()), json.loads(settings))
            path.write_text(json.dumps(merged))
