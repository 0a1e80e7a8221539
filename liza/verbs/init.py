"""init: prepare a repository for a crew. All checks run before anything is written."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import msgspec

from liza.crew import layout
from liza.crew.crew import Crew, SystemClock, is_empty_directory, no_crew_error
from liza.crew.drift import confirmed_settings, drift
from liza.crew.landing import accepted_origin
from liza.crew.project import commands, local_files, signing
from liza.crew.project.baseline import Baseline, BaselineOptions, run_baseline
from liza.crew.project.other_directory import suggest_directory
from liza.crew.recovery import moved_repository
from liza.crew.recovery.recorder import record_history
from liza.crew.result import Result
from liza.programs.presets import preset_table
from liza.repo import board_history, symbolic_refs
from liza.repo.config_pins import Pins
from liza.repo.hiding import brief_filter, exclude
from liza.repo.ref_names import ref_conflict_error
from liza.repo.runner import ConfigOverrides, Git
from liza.repo.slots import slots_directory
from liza.repo.slots.pool import Worktrees
from liza.repo.survey import Survey, survey
from liza.rules.errors import LizaError, LockTimeout, Missing, Refused, UsageError
from liza.rules.formatting.counts import count_noun
from liza.rules.formatting.redaction import describe_secrets
from liza.rules.formatting.times import format_time
from liza.rules.model import FULL_CHECKOUT, Config
from liza.rules.paths import HISTORY_REF, Paths, branch_of
from liza.rules.project import slots_location
from liza.rules.project.init_command import complete_init_commands
from liza.rules.value_classes import Value, replace
from liza.system import files
from liza.system.flock import lock_path

ReportFact = Callable[[str, str], None]
AskPermissions = Callable[[str], str]
"""Ask the person whether this program may skip its permission prompts; return the permissions."""
DEFAULT_PERMISSIONS = "confined"
_DIRECTORY_HINT = "--worktrees DIR"
_LOCK_TIMEOUT = 0.2  # seconds; another init holds the lock until it ends, so longer waiting does not help


class InitOptions(Value):
    """Options of `liza init`; None means that init finds the value."""

    goal: str | None = None
    spec: str | None = None
    test: str | None = None
    setup: str | None = None
    no_test: bool = False
    accept_red: bool = False
    budget: float | None = None
    permissions: str | None = None
    program: str | None = None
    integration_branch: str = "integration"
    worktrees: Path | None = None
    no_proof: bool = False
    copied_files: tuple[str, ...] = ()
    checkout: str = FULL_CHECKOUT

    def typed(self) -> list[tuple[str, ...]]:
        """Options as words of a command line. Defaults are left out."""
        texts = {
            "--spec": self.spec,
            "--test": self.test,
            "--setup": self.setup,
            "--budget": None if self.budget is None else f"{self.budget:g}",
            "--permissions": self.permissions,
            "--program": self.program,
            "--integration-branch": None if self.integration_branch == "integration" else self.integration_branch,
            "--checkout": None if self.checkout == FULL_CHECKOUT else self.checkout,
            "--worktrees": None if self.worktrees is None else str(self.worktrees),
        }
        flags = {"--no-test": self.no_test, "--accept-red": self.accept_red, "--no-proof": self.no_proof}
        return [
            *((name, text) for name, text in texts.items() if text is not None),
            *((name,) for name, is_set in flags.items() if is_set),
            *(("--copy", name) for name in self.copied_files),
        ]


def init(
    directory: Path,
    options: InitOptions,
    say: ReportFact = lambda name, text: None,
    ask: AskPermissions | None = None,
) -> Result:
    """Create a crew: goal, branch, baseline, board. ``say`` is called with each fact as soon as it is known.

    ``ask`` is called once, and not for a repository that cannot have a crew, or a program without permissions.

    Raises Missing, Refused, GitFailed, UsageError.
    """
    if options.budget is not None and not options.budget > 0:
        raise UsageError(f"the budget is {options.budget:g} dollars; it must be above 0", "liza init --help")
    surveyed = check_repository(directory)
    crew = Crew(Paths(surveyed.root), SystemClock())
    options = _with_permissions(crew, options, ask)
    with ExitStack() as stack:
        try:
            # The lock is on .git because .liza can be moved away. Without a lock, an init that fails would delete what
            # another one created.
            stack.enter_context(lock_path(surveyed.root / ".git", timeout=_LOCK_TIMEOUT))
        except LockTimeout:
            raise Refused(f"another `liza init` runs in {surveyed.root}", "liza status") from None
        try:
            return _init(crew, surveyed, options, say)
        except LizaError as error:
            error.hint = _complete_hint(error.hint, surveyed.root, options)
            raise


def _with_permissions(crew: Crew, options: InitOptions, ask: AskPermissions | None) -> InitOptions:
    """Return the options with the person's answer. The question comes before the lock: an answer can take long."""
    if ask is None or options.permissions is not None:
        return options
    _refuse_second(crew)
    _goal(crew.git, options)
    program = _program(crew, options)
    preset = preset_table.load_presets(crew.paths).resolve(program)
    return options if preset.permissions.none else replace(options, permissions=ask(program))


def _refuse_second(crew: Crew) -> None:
    if crew.paths.state.exists():
        moved_repository.refuse_foreign(crew.paths, slots_directory.read_record(crew.paths))
        raise Refused(f"{crew.paths.root} has a crew already", "liza status")


def _complete_hint(hint: str, root: Path, options: InitOptions) -> str:
    """Return the hint with the goal and the options that the person typed, and with a directory for the worktrees."""
    directory = suggest_directory(root, os.environ) if _DIRECTORY_HINT in hint else None
    if directory is not None:
        hint = hint.replace(_DIRECTORY_HINT, f"--worktrees {shlex.quote(str(directory))}")
    return complete_init_commands(hint, options.goal, options.typed())


def _init(crew: Crew, surveyed: Survey, options: InitOptions, say: ReportFact) -> Result:
    _refuse_second(crew)
    if _is_interrupted_init(crew):
        commands.kill_orphan_commands(crew.paths.root)
        slots_record = slots_directory.read_record(crew.paths)
        undo_init(crew if slots_record is None else _with_slots(crew, slots_record.directory), surveyed)
        say("left", "files of an init that was killed; removed")
    program = _program(crew, options)  # Before the tests: a mistyped name must not cost them.
    _refuse_foreign(crew)
    layout.refuse_survivors(crew)
    goal, spec = _goal(crew.git, options)
    tip = _integration_start(crew.git, options.integration_branch, surveyed)
    # Before the pins are taken, only the user's own git configuration is trusted, not the repository's.
    newest = board_history.read_newest(replace(crew.git, pins=Pins.from_user_config(crew.git)))
    first_number = newest[0] if newest else 0
    slots_record = slots_directory.choose_directory(crew.paths.root, options.worktrees, os.environ)
    crew = _with_slots(crew, slots_record.directory)
    crew.paths.liza.mkdir(exist_ok=True)  # it is empty: a mount point cannot be removed
    try:
        _init_marker(crew).touch()
        slots_directory.write_record(crew.paths, slots_record)
        _prepare_repository(crew, options, tip, surveyed.branch, say)
        if surveyed.dirty_count:
            count = count_noun(surveyed.dirty_count, "file")
            say("changes", f"{count} changed and not committed: agents see only committed files")
        if spec is None:
            spec = layout.GOAL_FILE
            (crew.paths.root / spec).write_text(layout.default_goal_text(goal))
            say("goal", f"{spec} written from your sentence; `liza edit goal` to say more")
        options = _with_included_files(crew.git, options, say)
        baseline_options = BaselineOptions(
            options.test,
            options.setup,
            options.no_test,
            options.no_proof,
            options.accept_red,
            options.copied_files,
            options.checkout,
        )
        baseline = run_baseline(
            crew, Worktrees(crew.paths, crew.git, options.integration_branch), baseline_options, tip, say
        )
        say("programs", f"{program} for all roles, permissions {options.permissions or DEFAULT_PERMISSIONS}")
        config = Config(programs={"default": program}, environment=baseline.environment)
        for finding in signing.inspect_signing(crew.paths, crew.git, config):
            say(finding.about, f"{finding.text}: {finding.hint}" if finding.hint else finding.text)
        # Start above the revisions of an existing history: lower numbers would count as recorded already.
        crew.board.create(_first_board(goal, spec, options, baseline, crew.clock.now()), first_number)
        confirmed_settings.confirm_all_settings(crew.paths, crew.board.read_as_written())
        confirmed_settings.accept_ref(crew.paths, confirmed_settings.EVERY_REF, crew.clock.now())
        _init_marker(crew).unlink()
        if newest:
            say(
                "history",
                f"{HISTORY_REF} has revisions of an earlier crew, up to {first_number}; yours continue from there",
            )
    except BaseException:
        undo_init(crew, surveyed)
        raise
    record_history(crew)
    details = {
        "root": str(surveyed.root),
        "integration": tip,
        "tested": bool(baseline.command),
        "revision": first_number + 1,
    }
    return Result("changed", None, None, "liza up", details, remarks=describe_secrets("", goal))


def _with_included_files(git: Git, options: InitOptions, say: ReportFact) -> InitOptions:
    """Return the options with the files that ``.worktreeinclude`` names, and report them.

    The names are resolved once: the file is the project's, and a later change of it, which can be an agent's, must not
    copy more of the person's files.
    """
    included = local_files.find_included(git)
    names = [name for name in included.ignored if not local_files.is_copied(name, options.copied_files)]
    if names:
        say("files", f"{', '.join(names)}: copied into each worktree, as {local_files.INCLUDE_FILE} says")
    for refused in included.refused:
        say("files", refused)
    return replace(options, copied_files=(*options.copied_files, *local_files.copy_patterns(names)))


def _with_slots(crew: Crew, directory: Path) -> Crew:
    return replace(crew, paths=replace(crew.paths, chosen_slots=directory))


def check_repository(directory: Path, pins: ConfigOverrides | None = None) -> Survey:
    """Survey the repository. Raises Missing or Refused for the first reason why a crew cannot work in it."""
    here = directory.resolve()
    slots_location.refuse_line_break(next((path for path in (here, *here.parents) if (path / ".git").exists()), here))
    surveyed = survey(directory, pins)
    if surveyed.bare:
        raise Refused(f"{directory} is a bare repository; a crew needs a checkout", f"git clone {directory} CHECKOUT")
    if surveyed.worktree_of is not None:
        raise Refused(f"{directory} is a linked worktree of {surveyed.worktree_of}", f"cd {surveyed.worktree_of}")
    git_dir = surveyed.root / ".git"
    if git_dir.is_symlink():
        path, line = shlex.quote(str(git_dir)), shlex.quote(f"gitdir: {git_dir.resolve()}")
        raise Refused(
            f"{git_dir} is a link; it must be a directory, or a file that names the git directory",
            f"rm {path} && echo {line} > {path}",
        )
    if not git_dir.exists():
        raise Refused(
            f"the worktree of this repository is {surveyed.root}, which has no .git", "git config core.worktree"
        )
    if not surveyed.has_merge_tree:
        raise Missing(
            f"git {surveyed.git_version} is too old: liza needs git 2.38 or later, for git merge-tree", "git --version"
        )
    if Git(surveyed.root).ok("show-ref", "--verify", "--quiet", "refs/heads/task"):
        raise ref_conflict_error("task", branch_of("<id>"))
    if surveyed.head is None:
        raise Missing("the repository has no commit yet; agents start from one", 'git add -A && git commit -m "start"')
    if surveyed.branch is None:
        raise Refused(
            f"HEAD is detached at {surveyed.head[:12]}; integration should start from a branch", "git switch main"
        )
    if surveyed.identity is None:
        raise Missing(
            "git has no identity; commits need a name and an address",
            'git config --global user.name "You"; git config --global user.email you@example.org',
        )
    return surveyed


def _program(crew: Crew, options: InitOptions) -> str:
    """Return the program that the crew will run; a preset without a command is allowed here. Raises UsageError."""
    table = preset_table.load_presets(crew.paths)
    if options.program in table.rows:
        return str(options.program)
    return preset_table.choose_program(options.program, os.environ, "coder", Config(), table).spec


def _refuse_foreign(crew: Crew) -> None:
    """Raise Refused if .liza is a link, is tracked, or exists without a board.

    Files in .liza are trusted, so they must not come from a clone.
    """
    path = crew.paths.liza
    if path.is_symlink():
        raise Refused(f"{path} is a link; it must be a directory in the repository", f"rm {path}")
    if crew.git.out("ls-files", "--", path.name):
        raise Refused(
            f"{path.name} is tracked by git; liza trusts its files, so they must not come from a clone",
            f"git rm -r {path.name}",
        )
    if path.exists() and not is_empty_directory(path):
        error = no_crew_error(crew.paths.root)
        raise Refused(error.message, error.hint)


def _goal(git: Git, options: InitOptions) -> tuple[str, str | None]:
    if options.spec is not None:
        if not git.ok("rev-parse", "-q", "--verify", f"HEAD:{options.spec}"):
            raise Refused(
                f"{options.spec} is not committed; agents see only committed files",
                f"git add {options.spec} && git commit",
            )
        return options.goal or f"What {options.spec} says", options.spec
    if not (options.goal or "").strip():
        raise Refused("a crew needs a goal: a sentence, or a committed spec", 'liza init "what you want to have"')
    return str(options.goal).strip(), None


def _integration_start(git: Git, branch: str, surveyed: Survey) -> str:
    """Return the start commit of integration: its tip if it contains HEAD, or HEAD if there is no such branch.

    Raises Refused if the branch is behind HEAD or has diverged from it.
    """
    assert surveyed.head is not None
    if not git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{branch}"):
        return surveyed.head
    tip = git.out("rev-parse", f"refs/heads/{branch}")
    if git.ok("merge-base", "--is-ancestor", surveyed.head, tip):
        return tip
    if git.ok("merge-base", "--is-ancestor", tip, surveyed.head):
        raise Refused(f"the branch {branch} is behind {surveyed.branch}", f"git branch -f {branch} {surveyed.branch}")
    raise Refused(
        f"the branch {branch} exists and has diverged from {surveyed.branch}",
        f'git branch -m {branch} {branch}-old, or: liza init "…" --integration-branch {branch}-2',
    )


def _init_marker(crew: Crew) -> Path:
    return crew.paths.liza / "init"


def _is_interrupted_init(crew: Crew) -> bool:
    """Whether .liza was left by an init that was killed before it created the board.

    Called under the init lock, so no other init runs.
    """
    if crew.paths.liza.is_symlink() or not crew.paths.liza.is_dir():
        return False
    revisions = crew.paths.journal.read_bytes().count(b"\n") if crew.paths.journal.is_file() else 0
    return not any(crew.paths.liza.iterdir()) or (_init_marker(crew).is_file() and revisions <= 1)


def _prepare_repository(crew: Crew, options: InitOptions, tip: str, base: str | None, say: ReportFact) -> None:
    branch = options.integration_branch
    symbolic_refs.refuse_symbolic(crew.git, f"refs/heads/{branch}")
    is_new = not crew.git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
    crew.paths.creation.write_text(json.dumps({"branch": branch if is_new else None, "at": tip}) + "\n")
    layout.create_layout(crew)
    if is_new:
        crew.git.out("update-ref", f"refs/heads/{branch}", tip, "0" * len(tip))
    drift.record_last_tip(crew, tip)
    brief_filter.install_filter(crew.git)
    Pins.capture(crew.git).save(crew.paths)
    remotes = accepted_origin.record_first_origin(crew, base)
    if remotes is not None:
        project = "" if remotes.project is remotes.push else f"; pull requests go to {remotes.project.project_name}"
        origin = f"{remotes.push.address}; `liza land --pr` and `liza push` send to no other address{project}"
        say(remotes.push.name, origin)
    say("branch", f"{branch} at {tip[:12]}; your checkout and files stay untouched")
    say("worktrees", f"{crew.paths.slots}; `liza path ID` prints the worktree of a task")
    earlier = [str(worktrees.paths.slots) for worktrees in Worktrees(crew.paths, crew.git, branch).earlier()]
    if earlier:
        say("earlier", f"the worktrees of an earlier crew stay in {', '.join(earlier)}; `liza doctor` names each")


def _first_board(goal: str, spec: str, options: InitOptions, baseline: Baseline, now: datetime) -> str:
    """Text of the first board. Every JSON string is a YAML string, so JSON quotes the person's input safely."""
    lines = [
        "# The board of this crew. People and agents may edit it while they hold the lock:",
        "#   liza edit      or      flock .liza/state.yaml.lock $EDITOR .liza/state.yaml",
        "version: 1",
        "revision: 1",
        "goal:",
        '  id: "goal"',
        f"  description: {json.dumps(goal, ensure_ascii=False)}",
        f"  spec_ref: {json.dumps(spec, ensure_ascii=False)}",
        f'  created: "{format_time(now)}"',
        "  status: IN_PROGRESS",
        "tasks: []",
        "agents: {}",
        "discovered: []",
        "handoff: {}",
        "anomalies: []",
        "human_notes: []",
        "spec_changes: []",
        "sprint:",
        '  id: "sprint-1"',
        "  timeline:",
        f'    started: "{format_time(now)}"',
        "  status: IN_PROGRESS",
        "circuit_breaker:",
        "  status: OK",
        "config:",
        "  max_coder_iterations: 10",
        "  max_review_cycles: 5",
        "  heartbeat_interval: 60    # seconds",
        "  lease_duration: 300       # seconds",
        f"  integration_branch: {json.dumps(options.integration_branch)}",
        f"  integration_command: {json.dumps(baseline.command, ensure_ascii=False)}",
        f"  permissions: {options.permissions or DEFAULT_PERMISSIONS}",
    ]
    if baseline.setup is not None:
        lines.append(f"  sandbox_setup: {json.dumps(baseline.setup.text, ensure_ascii=False)}")
        lines.append(f"  sandbox_setup_files: {json.dumps(list(baseline.setup.source_files))}")
    if options.checkout != FULL_CHECKOUT:
        lines.append(f"  checkout: {options.checkout}")
    if options.copied_files:
        lines.append(f"  sandbox_copy: {json.dumps(list(options.copied_files), ensure_ascii=False)}")
    if baseline.caches:
        lines.append(f"  sandbox_keep: {json.dumps(list(baseline.caches))}    # caches that merges keep between tests")
    if baseline.gate_environment is not None:
        lines.append(
            f"  gate_environment: {json.dumps(list(baseline.gate_environment))}    # the tests are red with CI=true"
        )
    if baseline.environment is not None:
        lines.append(f"  environment: {json.dumps(baseline.environment, ensure_ascii=False)}    # first on PATH")
    if baseline.proof.outcome:
        lines.append("  proof:    # whether the tests test the worktree they run in; again: liza doctor --tests")
        fields = msgspec.structs.asdict(baseline.proof)
        lines += [f"    {name}: {json.dumps(text, ensure_ascii=False)}" for name, text in fields.items() if text]
    if options.program is not None:
        lines += ["  programs:", f"    default: {json.dumps(options.program)}"]
    if options.budget is not None:
        lines += ["  budget:", f"    money_per_sprint: {options.budget}"]
    return "\n".join(lines) + "\n"


def undo_init(crew: Crew, surveyed: Survey) -> None:
    """Restore the repository to its state before init: delete what this init created, keep refs that have other work.

    Idempotent. Raises GitFailed, OSError.
    """
    Worktrees(crew.paths, crew.git).remove_all()
    brief_filter.uninstall_filter(crew.git)
    exclude.unignore_liza_dirs(crew.git)
    # An init that was killed early has not written this file.
    crew.git.run("update-ref", "-d", drift.LAST_INTEGRATION_REF)
    path = crew.paths.creation
    created = json.loads(path.read_text() or "{}") if path.exists() else {}
    branch, tip = created.get("branch"), created.get("at")
    if (
        branch
        and surveyed.branch != branch
        and crew.git.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}").stdout
    ):
        # Delete it only at its initial commit: another process may have moved it since.
        crew.git.run("update-ref", "-d", f"refs/heads/{branch}", str(tip))
    if crew.paths.liza.exists():
        files.remove_tree(crew.paths.liza)
