"""init: prepare a repository for a crew. All checks run before anything is written."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from liza.board.presence import has_board
from liza.box import support
from liza.config import confirmed_settings
from liza.crew import deleted_parts, layout
from liza.crew.crew import Crew, is_empty_directory, no_crew_error
from liza.crew.recorder import record_history
from liza.crew.result import Result
from liza.git import (
    board_history,
    branch_moves,
    candidates,
    git_config,
    git_refs,
    hiding,
    integration_tip,
    local_files,
    salvage,
    slots_directory,
)
from liza.git.git_config import find_failing_filters
from liza.git.runner import Git
from liza.git.survey import (
    FIRST_COMMIT_COMMAND,
    IDENTITY_COMMAND,
    Survey,
    begin_command,
    clone_command,
    describe_operation,
    holds_home,
    survey,
)
from liza.git.worktrees import PROOF_SLOT, Worktrees
from liza.model import targets
from liza.model.configuration import Config, Confinement
from liza.model.errors import LizaError, LockTimeout, Missing, ProgramMissing, Refused, UsageError
from liza.model.paths import HISTORY_REF, Paths, branch_of
from liza.model.value_classes import replace
from liza.programs import liveness
from liza.programs.presets import preset_table, program_choice
from liza.programs.presets.command_line import started_program
from liza.programs.presets.preset_table import Presets
from liza.programs.presets.program_choice import ProgramChoice
from liza.project import commands, first_board, hook_files, project_report, saved_setup
from liza.project.baseline import InitOptions, ReportFact, run_baseline
from liza.project.project_report import suggest_directory
from liza.project.rules import lock_files
from liza.project.rules.project_kinds import INIT, complete_init_commands, join_commands
from liza.project.shared_board import NewServerCrew
from liza.system import files
from liza.system.clock import SystemClock
from liza.system.locks import lock_path
from liza.text.formats import count_noun
from liza.text.redaction import describe_secrets
from liza.text.undecoded import escape_undecoded

AskPermissions = Callable[[str], str]
RecordOrigin = Callable[[Crew, str | None], tuple[str, str] | None]
"""Ask the person whether this program may skip its permission prompts; return the permissions."""
_DIRECTORY_HINT = '--worktrees "…"'
_NAMED_COMMITS = 3
_NO_OTHER_COMMITS = "it has no commit that yours lacks"
LOCK_TIMEOUT = 0.2  # seconds; another init holds the lock until it ends, so longer waiting does not help


def init(
    directory: Path,
    options: InitOptions,
    say: ReportFact = lambda name, text: None,
    ask: AskPermissions | None = None,
    record_origin: RecordOrigin = lambda crew, branch: None,
    begin: ReportFact | None = None,
) -> Result:
    """Create a crew: goal, branch, baseline, board. ``say`` is called with each fact as soon as it is known, ``begin``
    with each command that starts to run; without ``begin``, ``say`` is.

    ``ask`` is called once, and not for a repository that cannot have a crew, a program without permissions, or agents
    in boxes. ``record_origin``: accept the addresses of the person's branch for pushes; it returns a fact, or None.

    Raises Missing, Refused, GitFailed, UsageError.
    """
    if options.budget is not None and not options.budget > 0:
        raise UsageError(f"the budget is {options.budget:g} dollars; it must be above 0", "liza init --help")
    surveyed, errors = check_repository(directory)
    crew = None if surveyed is None else Crew(Paths(surveyed.root), SystemClock())
    if crew is not None and surveyed is not None:
        _refuse_second(crew.paths)
        errors += find_obstacles(crew, surveyed, options)
        errors += _collect_errors(
            lambda: _find_server_crew(crew, surveyed, options),
            lambda: _goal(crew.git, options),
            lambda: _program(crew.paths, options),
            lambda: support.choose_box_program(options.settings.confinement),
            lambda: slots_directory.choose_directory(surveyed.root, options.worktrees, os.environ),
        )
    if errors:
        raise _join_errors(errors, directory if surveyed is None else surveyed.root, options)
    assert crew is not None
    assert surveyed is not None
    options = _with_permissions(crew.paths, options, ask)
    with ExitStack() as stack:
        try:
            # The lock is on .git because .liza can be moved away. Without a lock, an init that fails would delete what
            # another one created.
            stack.enter_context(lock_path(surveyed.root / ".git", timeout=LOCK_TIMEOUT))
        except LockTimeout:
            raise Refused(f"another `liza init` runs in {surveyed.root}", "liza status") from None
        try:
            return _init(crew, surveyed, options, say, record_origin, begin or say)
        except LizaError as error:
            error.hint = _complete_hint(error.hint, surveyed.root, options)
            raise


def _with_permissions(paths: Paths, options: InitOptions, ask: AskPermissions | None) -> InitOptions:
    """Return the options with the person's answer. The question comes before the lock: an answer can take long."""
    if ask is None or options.permissions is not None or support.choose_box_program(options.settings.confinement):
        return options
    choice = _program(paths, options)
    return options if choice.preset.permissions.none else replace(options, permissions=ask(choice.preset.name))


def _refuse_second(paths: Paths) -> None:
    if has_board(paths):
        deleted_parts.refuse_foreign(paths, slots_directory.read_record(paths))
        is_running = any(liveness.is_supervised(paths, agent) for agent in ("planner-1", "coder-1", "code-reviewer-1"))
        anew = "another goal: liza edit --goal; to begin anew: liza down --purge"
        raise Refused(f"{paths.root} has a crew already; {anew}", "liza status" if is_running else "liza up")


def _complete_hint(hint: str, root: Path, options: InitOptions) -> str:
    """Return the hint with the goal and the options that the person typed, and with a directory for the worktrees."""
    directory = suggest_directory(root, os.environ) if _DIRECTORY_HINT in hint else None
    if directory is not None:
        hint = hint.replace(_DIRECTORY_HINT, f"--worktrees {shlex.quote(str(directory))}")
    return complete_init_commands(hint, options.goal, options.typed())


def _init(
    crew: Crew,
    surveyed: Survey,
    options: InitOptions,
    say: ReportFact,
    record_origin: RecordOrigin,
    begin: ReportFact,
) -> Result:
    _refuse_second(crew.paths)
    if is_interrupted_init(crew.paths):
        commands.kill_orphan_commands(crew.paths.root)
        slots_record = slots_directory.read_record(crew.paths)
        undo_init(crew if slots_record is None else _with_slots(crew, slots_record.directory), surveyed)
        say("left", "files of an init that was killed; removed")
    table = preset_table.load_presets(crew.paths)
    choice = _program(crew.paths, options)  # Before the tests: a mistyped name must not cost them.
    refuse_foreign_files(crew)
    layout.refuse_survivors(crew.paths)
    goal, spec = _goal(crew.git, options)
    branch = options.integration_branch or Config().integration_branch
    tip = _integration_start(crew.git, options, surveyed)
    server_crew = _find_server_crew(crew, surveyed, options)
    newest = board_history.read_newest(crew.git)
    first_number = newest[0] if newest else 0
    slots_record = slots_directory.choose_directory(crew.paths.root, options.worktrees, os.environ)
    crew = _with_slots(crew, slots_record.directory)
    crew.paths.liza.mkdir(exist_ok=True)  # it is empty: a mount point cannot be removed
    try:
        init_marker(crew.paths).touch()
        slots_directory.write_record(crew.paths, slots_record)
        _prepare_repository(crew, surveyed, branch, tip, say, record_origin)
        if surveyed.dirty_count:
            count = count_noun(surveyed.dirty_count, "file")
            say("changes", f"{count} changed and not committed: agents see only committed files")
        if spec is None:
            spec = layout.GOAL_FILE
            (crew.paths.root / spec).write_text(layout.default_goal_text(goal))
            say("goal", f"{spec} written from your sentence; `liza edit goal` to say more")
        options = _with_included_files(crew.git, options, say)
        presets = (table.rows[choice.preset.name], *table.rows.values())
        before = git_config.describe_setup(crew.git)
        worktrees = crew.worktrees_onto(branch, options.settings.confinement)
        baseline = run_baseline(crew, worktrees, options, presets, tip, say, begin)
        for message in sorted(git_config.describe_setup(crew.git) - before):
            say("changed", f"{message}: by the set-up or the tests, in your checkout too")
        say("programs", _describe_program(choice, table, support.session_permissions(options.settings)))
        config = Config(programs={"default": choice.spec}, environment=baseline.environment)
        box = () if options.confinement is Confinement.OFF else project_report.inspect_box(options.settings)
        for finding in (*box, *hook_files.inspect_signing(crew.paths, crew.git, config)):
            say(finding.about, f"{finding.text}: {finding.hint}" if finding.hint else finding.text)
        # Before there is a board: no claim of the new crew can restore work of an earlier one.
        _leave_earlier_work(crew, branch, say)
        # Start above the revisions of an existing history: lower numbers would count as recorded already.
        generated = _find_generated(crew.git, say)
        text = first_board.format_board(goal, spec, options, baseline, generated, crew.clock.now())
        if server_crew is None:
            crew.board.create(text, first_number)
        else:
            from liza.project.new_server_crew import create_crew

            crew = create_crew(server_crew, crew, text, first_number)
        confirmed_settings.confirm_all_settings(crew.paths, crew.board.read_as_written())
        init_marker(crew.paths).unlink()
        if newest:
            say(
                "history",
                f"{HISTORY_REF} has revisions of an earlier crew, up to {first_number}; yours continue from there",
            )
    except BaseException:
        undo_init(crew, surveyed)
        raise
    saved_setup.forget(crew.paths.root)
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


def _find_generated(git: Git, say: ReportFact) -> dict[str, str]:
    """Return the commands that make the lock files of the project again, and report them. Raises GitFailed."""
    names = (*lock_files.GENERATED_LOCKS, lock_files.YARN_SETTINGS)
    generated = lock_files.propose_generated(git.names("ls-files", "-z", "--", *(f":(glob)**/{n}" for n in names)))
    for name, command in generated.items():
        say("generated", f"{name}: `{command}` resolves a conflict only there (config.generated)")
    return generated


def _find_server_crew(crew: Crew, surveyed: Survey, options: InitOptions) -> NewServerCrew | None:
    """Return the crew to create on a server; None for a board in a file. Raises Refused, BoardServerRefused, …"""
    if options.board is None or surveyed.head is None:
        return None
    from liza.project.new_server_crew import check_new_crew

    return check_new_crew(crew.git, options, _integration_start(crew.git, options, surveyed))


def _with_slots(crew: Crew, directory: Path) -> Crew:
    return replace(crew, paths=replace(crew.paths, chosen_slots=directory))


def check_repository(directory: Path, *, has_crew: bool = False) -> tuple[Survey | None, list[LizaError]]:
    """Survey the repository. Return it, None for a place where no crew can be, and all reasons against a crew here."""
    try:
        surveyed = survey_place(directory)
    except LizaError as error:
        return None, [error]
    errors: list[LizaError] = []
    if not surveyed.has_merge_tree:
        text = f"git {surveyed.git_version} is too old: liza needs git 2.38 or later, for git merge-tree"
        errors.append(Missing(text, "git --version"))
    if surveyed.identity is None:
        errors.append(Missing("git has no identity; commits need a name and an address", IDENTITY_COMMAND))
    if surveyed.head is None:
        text = "the repository has no commit yet; agents start from one"
        errors.append(Missing(text, FIRST_COMMIT_COMMAND))
    git = Git(surveyed.root)
    branches = git_refs.list_branches(git)
    if surveyed.head is not None and surveyed.branch is None:
        branch = git_refs.suggest_branch(git, Config().integration_branch, "--points-at=HEAD")
        step = ["git", "switch", *([branch] if branch else ["-c", git_refs.find_free_name("work", branches)])]
        # git does not switch branches during a rebase.
        operation, hint = describe_operation(surveyed.root) or ("", shlex.join(step))
        why = f" ({operation})" if operation else ""
        text = f"HEAD is detached at {surveyed.head[:12]}{why}; integration should start from a branch"
        errors.append(Refused(text, hint))
    task_branch = branch_of("<id>")
    if "task" in branches:
        errors.append(git_refs.ref_conflict_error("task", task_branch, branches))
    if surveyed.head is not None:
        for failing in find_failing_filters(git, surveyed.head):
            # A clone has no filter of the repository's own configuration: it has the files as git stores them.
            use_clone = failing.is_local and not has_crew
            hint = clone_command(surveyed.repository)[0] if use_clone else failing.show_command
            errors.append(Refused(failing.reason, hint))
    return surveyed, errors


def survey_place(directory: Path) -> Survey:
    """Survey the repository. Raises an error for a place where no crew can be."""
    here = directory.resolve()
    slots_directory.refuse_line_break(next((path for path in (here, *here.parents) if (path / ".git").exists()), here))
    surveyed = survey(directory)
    _refuse_place(here, surveyed)
    return surveyed


def _refuse_place(here: Path, surveyed: Survey) -> None:
    """Raise Refused if a crew cannot be where the survey was made."""
    git_dir = surveyed.root / ".git"
    clone, directory = clone_command(surveyed.repository)
    if surveyed.bare:
        checkout = surveyed.repository.parent
        if surveyed.repository.name == ".git" and (surveyed.repository / "index").exists():
            text = f"core.bare is true, but {checkout} is a checkout; a tool may have left the setting"
            raise Refused(text, shlex.join(["git", "-C", str(checkout), "config", "core.bare", "false"]))
        raise Refused(f"{surveyed.repository} is a bare repository; a crew needs a checkout", clone)
    if surveyed.main_checkout is not None:
        which = "a linked worktree" if surveyed.root != surveyed.repository else "the git directory"
        raise Refused(
            f"{here} is in {which} of {surveyed.main_checkout}", shlex.join(["cd", str(surveyed.main_checkout)])
        )
    if holds_home(surveyed.root):
        begin, directory = (clone, directory) if holds_home(here) else (begin_command(Git(here)), here)
        # The usual directories for worktrees are all inside this repository.
        worktrees = suggest_directory(directory, os.environ)
        option = "" if worktrees is None else f" --worktrees {shlex.quote(str(worktrees))}"
        text = f"the repository {surveyed.root} holds your home directory; a crew needs one of its own"
        raise Refused(text, f"{begin} && {INIT}{option}")
    if git_dir.is_symlink():
        path, line = shlex.quote(str(git_dir)), shlex.quote(f"gitdir: {git_dir.resolve()}")
        raise Refused(
            f"{git_dir} is a link; it must be a directory, or a file that names the git directory",
            f"rm {path} && echo {line} > {path}",
        )
    if not git_dir.exists():
        raise Refused(f"the worktree of this repository is {surveyed.root}, which has no .git", clone)


def find_obstacles(crew: Crew, surveyed: Survey, options: InitOptions) -> list[LizaError]:
    """Return the reasons, beside those of ``check_repository``, why the repository can have no crew yet."""
    if is_interrupted_init(crew.paths):
        return []
    errors = _collect_errors(lambda: refuse_foreign_files(crew))
    if surveyed.head is not None:
        errors += _collect_errors(lambda: _integration_start(crew.git, options, surveyed))
    return errors


def _collect_errors(*checks: Callable[[], object]) -> list[LizaError]:
    errors: list[LizaError] = []
    for check in checks:
        try:
            check()
        except LizaError as error:
            errors.append(error)
    return errors


def _join_errors(errors: Sequence[LizaError], root: Path, options: InitOptions) -> LizaError:
    """Return one error for all; its class is that of the first. A wrong command line is corrected first."""
    wrong = next((error for error in errors if isinstance(error, UsageError)), None)
    error = wrong or errors[0]
    if len(errors) > 1 and wrong is None:
        lines = [f"{len(errors)} things are in the way of a crew here:", *(f"  {error.message}" for error in errors)]
        error.message, error.hint = "\n".join(lines), join_commands([error.hint for error in errors])
    error.hint = _complete_hint(error.hint, root, options)
    return error


def _program(paths: Paths, options: InitOptions) -> ProgramChoice:
    """Return the program that the crew will run. Raises UsageError, and ProgramMissing if the person has named one that
    is not installed."""
    table = preset_table.load_presets(paths)
    choice = program_choice.choose_program(options.program, os.environ, "coder", Config(), table)
    if options.program is not None:
        program_choice.require_choice(choice, started_program(choice.preset), table, f"{INIT} --program")
    return choice


def _describe_program(choice: ProgramChoice, table: Presets, permissions: str) -> str:
    """Return which program will run, or how a person gets one."""
    try:
        program_choice.require_choice(choice, started_program(choice.preset), table)
    except ProgramMissing as error:
        return f"{error.message}: {error.hint}"
    source = f" ({choice.source})" if choice.source == program_choice.ONLY_INSTALLED else ""
    return f"{choice.spec} for all roles{source}, permissions {permissions}"


def refuse_foreign_files(crew: Crew) -> None:
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
                f'git add {shlex.quote(options.spec)} && git commit -m "Add the spec"',
            )
        return options.goal or f"What {options.spec} says", options.spec
    if not (options.goal or "").strip():
        raise Refused("a crew needs a goal: a sentence, or a committed spec", 'liza init "what you want to have"')
    return str(options.goal).strip(), None


def _integration_start(git: Git, options: InitOptions, surveyed: Survey) -> str:
    """Return the start commit of integration: its tip if it contains HEAD, or HEAD if there is no such branch.

    Raises UsageError for a name that no branch can have. Raises Refused if another ref excludes the branch, if it
    exists and neither Liza created it nor the person named it, or if it lacks commits of HEAD.
    """
    assert surveyed.head is not None
    branch = options.integration_branch or Config().integration_branch
    branches = git_refs.list_branches(git)
    other = f'liza init "…" --integration-branch {shlex.quote(git_refs.find_free_name(branch, [*branches, branch]))}'
    if not targets.is_target_name(branch):
        raise UsageError(f"{branch!r} cannot be the branch of the merges", 'liza init "…" --integration-branch crew')
    _refuse_excluding_refs(git)
    ignore_case = git.run("config", "--type=bool", "core.ignoreCase").stdout == b"true\n"
    excluding = git_refs.find_excluding(branch, branches, ignore_case=ignore_case)
    if excluding is not None:
        raise Refused(f"the branch {excluding} is in the way: git cannot have {branch} beside it", other)
    tip = git.find_commit(git_refs.HEADS + branch)
    if tip is None:
        return surveyed.head
    has_head = git.ok("merge-base", "--is-ancestor", surveyed.head, tip)
    take = f'liza init "…" --integration-branch {shlex.quote(branch)}'
    if options.integration_branch is None and tip != git.find_commit(branch_moves.LAST_INTEGRATION_REF):
        commits = _describe_commits(git, surveyed.head, tip)
        message = f"the branch {branch} exists, and no record says that Liza created it; {commits}"
        raise Refused(f"{message}; to take it over: {take}" if has_head else message, other)
    if has_head:
        return tip
    if not git.ok("merge-base", "--is-ancestor", tip, surveyed.head):
        raise Refused(f"the branch {branch} has diverged from {surveyed.branch}", other)
    checkout = branch_moves.find_branches(git, branch)[branch].checkout
    forward = f"git branch -f {shlex.quote(branch)} {surveyed.head[:12]} && {take}"
    raise Refused(f"the branch {branch} is behind {surveyed.branch}", forward if checkout is None else other)


def _refuse_excluding_refs(git: Git) -> None:
    """Raise Refused if a ref excludes one of Liza's own."""
    refs = git.lines("for-each-ref", "--format=%(refname)", HISTORY_REF.rpartition("/")[0])
    for own in (HISTORY_REF, branch_moves.LAST_INTEGRATION_REF, candidates.candidate_ref("<id>")):
        ref = git_refs.find_excluding(own, refs)
        if ref is not None:
            renamed = ref.replace("refs/", "refs/renamed/", 1)
            step = f"git update-ref {shlex.quote(renamed)} {shlex.quote(ref)} && git update-ref -d {shlex.quote(ref)}"
            raise Refused(f"the ref {ref} is in the way: git cannot have {own} beside it", step)


def _describe_commits(git: Git, head: str, tip: str) -> str:
    """Return what ``tip`` has beside ``head``, by the subjects of the newest commits."""
    count = int(git.out("rev-list", "--count", tip, f"^{head}"))
    lines = git.lines("log", "--no-color", f"--max-count={_NAMED_COMMITS}", "--format=%h %s", tip, f"^{head}")
    more = f", and {count - len(lines)} more" if count > len(lines) else ""
    named = ", ".join(escape_undecoded(line)[:80] for line in lines)
    return f"it has {count_noun(count, 'commit')} that yours lacks: {named}{more}" if count else _NO_OTHER_COMMITS


def init_marker(paths: Paths) -> Path:
    """Path of the file that exists while init or join creates the files of a crew."""
    return paths.liza / "init"


def is_interrupted_init(paths: Paths) -> bool:
    """Whether .liza was left by an init that was killed before it created the board.

    Called under the init lock, so no other init runs.
    """
    if paths.liza.is_symlink() or not paths.liza.is_dir():
        return False
    revisions = paths.journal.read_bytes().count(b"\n") if paths.journal.is_file() else 0
    return not any(paths.liza.iterdir()) or (init_marker(paths).is_file() and revisions <= 1)


def _prepare_repository(
    crew: Crew, surveyed: Survey, branch: str, tip: str, say: ReportFact, record_origin: RecordOrigin
) -> None:
    is_new = not crew.git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
    crew.paths.creation.write_text(json.dumps({"branch": branch if is_new else None, "at": tip}) + "\n")
    layout.create_layout(crew)
    if is_new:
        crew.git.out("update-ref", f"refs/heads/{branch}", tip, "0" * len(tip))
    integration_tip.record_last_tip(crew.git, tip)
    hiding.install_filter(crew.git)
    confirmed_settings.create_pins(crew.paths)
    origin = record_origin(crew, surveyed.branch)
    if origin is not None:
        say(*origin)
    commits = "" if is_new else f"taken over; {_describe_commits(crew.git, str(surveyed.head), tip)}; "
    say("branch", f"{branch} at {tip[:12]}; {commits}your checkout and files stay untouched")
    behind = crew.git.run("rev-list", "--count", "HEAD..@{upstream}")
    if behind.code == 0 and (count := int(behind.stdout)):
        upstream = crew.git.out("rev-parse", "--abbrev-ref", "@{upstream}")
        missing = f"{count_noun(count, 'commit')} of {upstream}, as last fetched"
        say("behind", f"{surveyed.branch} lacks {missing}: git pull && liza sync")
    say("worktrees", f"{crew.paths.slots}; `liza path ID` prints the worktree of a task")
    earlier = Worktrees(crew.paths, crew.git, branch).recorded_slots()
    if earlier:
        left = f"{', '.join(earlier)} of an earlier crew are used again"
        say("earlier", f"{left}; what is not committed there is saved first, in refs/liza/salvage")


def _leave_earlier_work(crew: Crew, branch: str, say: ReportFact) -> None:
    """Keep the work of an earlier crew where no task of the new one restores it, and report where. Raises GitFailed."""
    Worktrees(crew.paths, crew.git, branch).disown_all()
    prefix = salvage.rename_earlier(crew.git)
    if prefix is not None:
        say("saved", f"work of an earlier crew is in {prefix}, and not in new tasks: git for-each-ref {prefix}")


def undo_init(crew: Crew, surveyed: Survey) -> None:
    """Restore the repository to its state before init: delete what this init created, keep refs that have other work.

    Idempotent. Raises GitFailed, OSError.
    """
    worktrees = Worktrees(crew.paths, crew.git)
    worktrees.discard(PROOF_SLOT)
    if not worktrees.recorded_slots():  # else an earlier crew of this repository has left its slots
        worktrees.remove_all()
    hiding.uninstall_filter(crew.git)
    hiding.unignore_liza_dirs(crew.git)
    # An init that was killed early has not written this file.
    crew.git.run("update-ref", "-d", branch_moves.LAST_INTEGRATION_REF)
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
    git_refs.remove_empty_directory(crew.git)
    if crew.paths.liza.exists():
        files.remove_tree(crew.paths.liza)
