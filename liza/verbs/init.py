"""init: make a repository ready for a crew. Whatever can be refused is refused before anything is made."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec

from liza.crew import layout
from liza.crew.crew import Crew, SystemClock, no_crew_error
from liza.crew.drift import confirmed_settings, drift
from liza.crew.project import commands
from liza.crew.project.baseline import Baseline, BaselineOptions, run_baseline
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
from liza.rules.errors import LockTimeout, Missing, Refused, UsageError
from liza.rules.model import Config
from liza.rules.paths import HISTORY_REF, Paths, branch_of
from liza.rules.project import slots_location
from liza.system.flock import lock_path

ReportFact = Callable[[str, str], None]
_LOCK_TIMEOUT = 0.2  # seconds


@dataclass(frozen=True)
class InitOptions:
    """What a person says to `liza init`; None means "find out"."""

    goal: str | None = None
    spec: str | None = None
    test: str | None = None
    setup: str | None = None
    no_test: bool = False
    accept_red: bool = False
    budget: float | None = None
    permissions: str = "confined"
    program: str | None = None
    integration_branch: str = "integration"
    worktrees: Path | None = None
    no_proof: bool = False


def init(directory: Path, options: InitOptions, say: ReportFact = lambda name, text: None) -> Result:
    """Goal, branch, baseline, board. ``say`` hears each fact as it is known.

    Raises Missing, Refused, GitFailed, Usage.
    """
    if options.budget is not None and not options.budget > 0:
        raise UsageError(f"a budget of {options.budget:g} dollars allows nothing", "liza init --help")
    found = check_repository(directory)
    crew = Crew(Paths(found.root), SystemClock())
    with ExitStack() as stack:
        try:
            # On .git, for .liza can be moved away: what one init makes, another that fails would take out.
            stack.enter_context(lock_path(found.root / ".git", timeout=_LOCK_TIMEOUT))
        except LockTimeout:
            raise Refused(f"another `liza init` is at work in {found.root}", "liza status") from None
        return _init(crew, found, options, say)


def _init(crew: Crew, found: Survey, options: InitOptions, say: ReportFact) -> Result:
    if crew.paths.state.exists():
        raise Refused(f"{found.root} has a crew already", "liza status")
    if _is_interrupted_init(crew):
        commands.kill_orphan_commands(crew.paths.root)
        left = slots_directory.read_record(crew.paths)
        undo_init(crew if left is None else _with_slots(crew, left.directory), found)
        say("left", "by an init that was killed; taken out again")
    _refuse_foreign(crew)
    layout.refuse_survivors(crew)
    goal, spec = _goal(crew.git, options)
    tip = _integration_start(crew.git, options.integration_branch, found)
    # What the repository's own configuration names is not believed before the pins are taken.
    earlier = board_history.read_newest(replace(crew.git, pins=Pins.from_user_config(crew.git)))
    above = earlier[0] if earlier else 0
    placed = slots_directory.choose_directory(crew.paths.root, options.worktrees, os.environ)
    crew = _with_slots(crew, placed.directory)
    crew.paths.liza.mkdir()
    try:
        _init_marker(crew).touch()
        slots_directory.write_record(crew.paths, placed)
        _prepare_repository(crew, options, tip, say)
        if spec is None:
            spec = layout.GOAL_FILE
            (crew.paths.root / spec).write_text(layout.default_goal_text(goal))
            say("goal", f"{spec} written from your sentence; `liza edit goal` to say more")
        wish = BaselineOptions(options.test, options.setup, options.no_test, options.no_proof, options.accept_red)
        tested = run_baseline(crew, Worktrees(crew.paths, crew.git, options.integration_branch), wish, tip, say)
        say("programs", f"{_program(crew, options)} for all roles, permissions {options.permissions}")
        # Numbers at or below the tip of a history that is there would pass for revisions that are recorded already.
        crew.board.create(_first_board(goal, spec, options, tested, crew.clock.now()), above)
        confirmed_settings.confirm_all_settings(crew.paths, crew.board.read_as_written())
        confirmed_settings.accept_ref(crew.paths, confirmed_settings.EVERY_REF, crew.clock.now())
        _init_marker(crew).unlink()
        if earlier:
            say("history", f"{HISTORY_REF} has revisions of an earlier crew, up to {above}; yours go on from there")
    except BaseException:
        undo_init(crew, found)
        raise
    record_history(crew)
    more = {"root": str(found.root), "integration": tip, "tested": bool(tested.command), "revision": above + 1}
    return Result("changed", None, None, "liza up", more)


def _with_slots(crew: Crew, place: Path) -> Crew:
    return replace(crew, paths=replace(crew.paths, chosen_slots=place))


def check_repository(directory: Path, pins: ConfigOverrides | None = None) -> Survey:
    """The repository, if a crew can work in it. Raises Missing, Refused: the one thing that is wrong."""
    here = directory.resolve()
    slots_location.refuse_line_break(next((one for one in (here, *here.parents) if (one / ".git").exists()), here))
    found = survey(directory, pins)
    if found.bare:
        raise Refused(f"{directory} is a bare repository; a crew needs a checkout", "git clone IT somewhere; cd there")
    if found.worktree_of is not None:
        raise Refused(f"{directory} is a linked worktree of {found.worktree_of}", f"cd {found.worktree_of}")
    place = found.root / ".git"
    if place.is_symlink():
        raise Refused(f"{place} is a link, and anybody who works here can turn it", f"ls -l {place}")
    if not place.exists():
        raise Refused(
            f"the files of this repository lie in {found.root}, away from its git directory", "git config core.worktree"
        )
    if not found.has_merge_tree:
        raise Missing(
            f"git {found.git_version} is too old: merges are made aside, with git 2.38 or later", "git --version"
        )
    if Git(found.root).ok("show-ref", "--verify", "--quiet", "refs/heads/task"):
        raise ref_conflict_error("task", branch_of("<id>"))
    if found.head is None:
        raise Missing("the repository has no commit yet; agents start from one", 'git add -A && git commit -m "start"')
    if found.branch is None:
        raise Refused(
            f"HEAD is detached at {found.head[:12]}; integration should start from a branch", "git switch main"
        )
    if found.identity is None:
        raise Missing(
            "git has no identity; commits need a name and an address",
            'git config --global user.name "You"; git config --global user.email you@example.org',
        )
    return found


def _program(crew: Crew, options: InitOptions) -> str:
    """What the crew will run. A program whose command is still to be given may be named already. Raises Usage."""
    table = preset_table.load_presets(crew.paths)
    if options.program in table.rows:
        return str(options.program)
    return preset_table.choose_program(options.program, os.environ, "coder", Config(), table).spec


def _refuse_foreign(crew: Crew) -> None:
    """What lies in .liza is believed, so it must be this machine's and not come with a clone. Raises Refused."""
    for place in (crew.paths.liza, crew.paths.worktrees):
        if place.is_symlink():
            raise Refused(f"{place} is a link; a crew keeps its things in the repository itself", f"rm {place}")
        if crew.git.out("ls-files", "--", place.name):
            raise Refused(
                f"{place.name} is tracked by git; what is believed must not come with a clone",
                f"git rm -r {place.name}",
            )
    if crew.paths.liza.exists():
        bereft = no_crew_error(crew.paths.root)
        raise Refused(bereft.message, bereft.hint)


def _goal(git: Git, options: InitOptions) -> tuple[str, str | None]:
    if options.spec is not None:
        if not git.ok("rev-parse", "-q", "--verify", f"HEAD:{options.spec}"):
            raise Refused(
                f"{options.spec} is not committed; agents see only what is", f"git add {options.spec} && git commit"
            )
        return options.goal or f"What {options.spec} says", options.spec
    if not (options.goal or "").strip():
        raise Refused("a crew needs a goal: a sentence, or a committed spec", 'liza init "what you want to have"')
    return str(options.goal).strip(), None


def _integration_start(git: Git, branch: str, found: Survey) -> str:
    """Where integration starts: HEAD; or where it stands, if it holds all of HEAD. Raises Refused when they parted."""
    assert found.head is not None
    if not git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{branch}"):
        return found.head
    tip = git.out("rev-parse", f"refs/heads/{branch}")
    if git.ok("merge-base", "--is-ancestor", found.head, tip):
        return tip
    if git.ok("merge-base", "--is-ancestor", tip, found.head):
        raise Refused(f"the branch {branch} is behind {found.branch}", f"git branch -f {branch} {found.branch}")
    raise Refused(
        f"the branch {branch} exists and has parted from {found.branch}",
        f'git branch -m {branch} {branch}-old, or: liza init "…" --integration-branch NAME',
    )


def _init_marker(crew: Crew) -> Path:
    return crew.paths.liza / "init"


def _is_interrupted_init(crew: Crew) -> bool:
    """Whether what lies in .liza is what an init left that was killed before there was a board. Asked under the lock,
    so none is at work."""
    if crew.paths.liza.is_symlink() or not crew.paths.liza.is_dir():
        return False
    journal = crew.paths.journal.read_bytes().count(b"\n") if crew.paths.journal.is_file() else 0
    return not any(crew.paths.liza.iterdir()) or (_init_marker(crew).is_file() and journal <= 1)


def _prepare_repository(crew: Crew, options: InitOptions, tip: str, say: ReportFact) -> None:
    branch = options.integration_branch
    symbolic_refs.refuse_symbolic(crew.git, f"refs/heads/{branch}")
    made = not crew.git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
    (crew.paths.liza / "made.json").write_text(json.dumps({"branch": branch if made else None, "at": tip}) + "\n")
    layout.create_layout(crew)
    if made:
        crew.git.out("update-ref", f"refs/heads/{branch}", tip, "0" * len(tip))
    drift.record_last_tip(crew, tip)
    brief_filter.install_filter(crew.git)
    Pins.capture(crew.git).save(crew.paths.pins)
    say("branch", f"{branch} at {tip[:12]}; your checkout and files stay untouched")
    say("worktrees", f"{crew.paths.slots}; .worktrees/<task> is a link into it")


def _first_board(goal: str, spec: str, options: InitOptions, tested: Baseline, now: datetime) -> str:
    """The first board. JSON strings are YAML strings, so whatever a person said is quoted safely."""
    lines = [
        "# The board of this crew. People and agents may edit it while they hold the lock:",
        "#   liza edit      or      flock .liza/state.yaml.lock $EDITOR .liza/state.yaml",
        "version: 1",
        "revision: 1",
        "goal:",
        '  id: "goal"',
        f"  description: {json.dumps(goal, ensure_ascii=False)}",
        f"  spec_ref: {json.dumps(spec, ensure_ascii=False)}",
        f'  created: "{now:%Y-%m-%dT%H:%M:%SZ}"',
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
        '  goal_ref: "goal"',
        "  timeline:",
        f'    started: "{now:%Y-%m-%dT%H:%M:%SZ}"',
        "  status: IN_PROGRESS",
        "circuit_breaker:",
        "  status: OK",
        "config:",
        "  max_coder_iterations: 10",
        "  max_review_cycles: 5",
        "  heartbeat_interval: 60    # seconds",
        "  lease_duration: 300       # seconds",
        f"  integration_branch: {json.dumps(options.integration_branch)}",
        f"  integration_command: {json.dumps(tested.command, ensure_ascii=False)}",
        f"  permissions: {options.permissions}",
    ]
    if tested.setup is not None:
        lines.append(f"  sandbox_setup: {json.dumps(tested.setup.text, ensure_ascii=False)}")
        lines.append(f"  sandbox_setup_files: {json.dumps(list(tested.setup.source_files))}")
    if tested.environment is not None:
        lines.append(f"  environment: {json.dumps(tested.environment, ensure_ascii=False)}    # first on PATH")
    if tested.proof.outcome:
        lines.append("  proof:    # whether the tests test the worktree they run in; again: liza doctor --tests")
        fields = msgspec.structs.asdict(tested.proof)
        lines += [f"    {name}: {json.dumps(text, ensure_ascii=False)}" for name, text in fields.items() if text]
    if options.program is not None:
        lines += ["  programs:", f"    default: {json.dumps(options.program)}"]
    if options.budget is not None:
        lines += ["  budget:", f"    money_per_sprint: {options.budget}"]
    return "\n".join(lines) + "\n"


def undo_init(crew: Crew, found: Survey) -> None:
    """Leave the repository as it was before init: what this crew made goes, what holds work of its own stays.

    Repeatable. Raises GitFailed, OSError.
    """
    Worktrees(crew.paths, crew.git).remove_all()
    brief_filter.uninstall_filter(crew.git)
    exclude.unignore_liza_dirs(crew.git)
    # One that was killed early enough has not written it.
    crew.git.run("update-ref", "-d", drift.LAST_INTEGRATION_REF)
    place = crew.paths.liza / "made.json"
    made = json.loads(place.read_text() or "{}") if place.exists() else {}
    branch, tip = made.get("branch"), made.get("at")
    if branch and found.branch != branch and crew.git.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}").stdout:
        # Only where it stands as it was made: somebody may have moved it since.
        crew.git.run("update-ref", "-d", f"refs/heads/{branch}", str(tip))
    if crew.paths.liza.exists():
        shutil.rmtree(crew.paths.liza)
