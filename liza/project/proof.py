"""Prove that the tests test the worktree they run in: run them in a throw-away slot, then with failing sources.

`broken_runs.py` runs the commands with failing sources.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from liza.briefs import instructions_file
from liza.config.rules import breakage, test_proof
from liza.config.rules.test_proof import GreenPart, NotProved, ProofDetails, ProofObservation, ProofOutcome
from liza.git import git_refs, local_files, slot_setup
from liza.git.runner import Git
from liza.git.worktrees import PROOF_SLOT, Worktrees
from liza.model import gates
from liza.model.value_classes import Value, replace
from liza.programs.session import log_file
from liza.project import commands, detect, installed_packages, saved_setup, tree_snapshot
from liza.project.broken_runs import NO_REPORT, BrokenRuns, ProofPlan, ProofReport, ProofSlot, ProofStep
from liza.project.rules import command_parts
from liza.project.rules.package_records import ChangedPackageFile
from liza.project.rules.tree_changes import TreeChanges
from liza.project.tree_snapshot import TreeSnapshot

_SETUP_LOG = "baseline-setup.log"
_FIRST_LINE_BYTES = 256  # bytes of a file that are read for its first line


class ProofResult(Value):
    """Results of the set-up and the tests in the slot, and of the run with failing sources.

    ``tests`` is None if the set-up failed, or without a test command. ``outcome`` is None if the tests were not green
    or no proof was requested. ``changes``: tracked files that the set-up and the tests wrote. ``packages``: installed
    files that differ from the records of their packages after the set-up. ``left``: untracked files of the set-up that
    git does not ignore. ``drops_variables``: the tests are green only without ``gate_environment``. ``seen_brief``: the
    instructions files with a brief, and the line with which the tests are red only because of it.
    """

    setup: commands.CommandOutcome | None = None
    tests: commands.CommandOutcome | None = None
    outcome: ProofOutcome | None = None
    changes: TreeChanges = TreeChanges()
    details: ProofDetails = ProofDetails()
    packages: tuple[ChangedPackageFile, ...] = ()
    left: tuple[str, ...] = ()
    drops_variables: bool = False
    seen_brief: str = ""


def run_proof(
    worktrees: Worktrees,
    commit: str,
    plan: ProofPlan,
    logs: Path,
    *,
    prove: bool = True,
    always: bool = True,
    report: ProofReport = NO_REPORT,
) -> ProofResult:
    """Set up a throw-away slot at ``commit``, run the tests, make the sources fail, and run them again.

    Without ``prove`` the sources are not changed; without ``always`` nothing runs if there is no source to make fail.
    The caller must hold the merge lock. Logs are ``LOGS/baseline-*.log``. Raises GitFailed, Refused, OSError, and what
    ``report`` raises.
    """
    worktrees.discard(PROOF_SLOT)
    worktrees.detach(PROOF_SLOT, commit, "proof")
    if plan.is_full:
        local_files.make_full(worktrees.slot_git(PROOF_SLOT))
    try:
        slot = _open_slot(worktrees, plan, logs, prove=prove and bool(plan.command))
        return _run_in_slot(worktrees, slot, prove=prove and bool(plan.command), always=always, report=report)
    finally:
        worktrees.discard(PROOF_SLOT)


def _open_slot(worktrees: Worktrees, plan: ProofPlan, logs: Path, *, prove: bool) -> ProofSlot:
    git = worktrees.slot_git(PROOF_SLOT)
    slot_setup.copy_files(worktrees.paths.root, git, plan.copied_files)
    commands.renew_git(worktrees.paths, git, plan.config)
    commit = git.out("rev-parse", "HEAD")
    tracked = git.names("ls-files", "-s", "-z") if prove else ()
    texts = (plan.command, plan.setup or "", *(gate.command for gate in plan.gates))
    definitions = read_definitions(git, commit, texts) if prove else {}
    return ProofSlot(worktrees.paths, git, commit, tracked, definitions, plan, logs)


def read_definitions(git: Git, commit: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the files of ``commit`` that define what the commands ``texts`` do, with their texts. Raises GitFailed."""
    names = git.names("ls-tree", "-r", "-z", "--name-only", commit)
    return command_parts.find_definitions(texts, names, lambda wanted: git_refs.read_files(git, commit, wanted))


def _run_in_slot(
    worktrees: Worktrees, slot: ProofSlot, *, prove: bool, always: bool, report: ProofReport
) -> ProofResult:
    plan, git = slot.plan, slot.git
    broken = _broken_sources(slot)
    details = ProofDetails(
        gates=tuple(gate.command for gate in plan.gates),
        meaning=command_parts.digest_definitions(slot.definitions) if broken else "",
    )
    if not (broken or always):
        outcome = test_proof.judge_proof(ProofObservation(None), str(slot.root), plan.hint)
        return ProofResult(outcome=outcome, details=details)
    setup = None
    tracked_files = tree_snapshot.take_snapshot(git)
    if plan.setup:
        setup = _run_setup(slot, plan.setup, report)
        if not setup.passed:
            return ProofResult(setup)
    result = ProofResult(setup, left=slot_setup.list_unignored(git))
    if not plan.command:
        return result
    result = replace(result, packages=installed_packages.find_changed_files(git, plan.environment))
    uncached = gates.uncached_variables({**os.environ, **plan.gate_environment})
    variables = {**plan.gate_environment, **uncached, "LIZA_BASE": _base_of(slot)}
    runs = BrokenRuns(slot, broken, {**variables, "LIZA_BASE": slot.commit}, report)
    is_clean = (
        plan.keeps_setup and setup is not None and tree_snapshot.find_changes(git, tracked_files) == TreeChanges()
    )
    kept = saved_setup.note(slot, setup.seconds) if is_clean and setup is not None else None
    report.begin(ProofStep.TESTS)
    try:
        result = _run_tests(worktrees, runs, result, tracked_files, variables)
        assert result.tests is not None
        tests = slot.compare_box(result.tests, variables)
        if result.drops_variables:
            runs.drop_variables(plan.gate_environment)
        report.end(ProofStep.TESTS, tests)
    except BaseException:
        # Before the first failing source: what the set-up left is as it was.
        if kept is not None:
            saved_setup.keep(slot, kept)
        raise
    if not tests.passed or not prove:
        return result
    observation = ProofObservation(None)
    if broken:
        observation = _observe(runs, tests)
        details = replace(details, green_parts=tuple(dict.fromkeys(part.text for part in observation.green)))
        if not observation.elsewhere:
            details = runs.examine_range(details, observation.exit_status)
        details = replace(details, setup_builds=runs.setup_builds)
    return replace(result, outcome=test_proof.judge_proof(observation, str(slot.root), plan.hint), details=details)


def _run_setup(slot: ProofSlot, command: str, report: ProofReport) -> commands.CommandOutcome:
    """Run the set-up, or take what an earlier `init` kept of it. Raises GitFailed, OSError."""
    kept = saved_setup.restore(slot) if slot.plan.keeps_setup else None
    if kept is not None and kept.commit == slot.commit:
        log = slot.logs / _SETUP_LOG
        setup = commands.CommandOutcome(command, slot.path, 0, kept.seconds, log, is_kept=True)
    else:
        report.begin(ProofStep.SET_UP)
        setup = slot.compare_box(slot.run_command(command, _SETUP_LOG))
    report.end(ProofStep.SET_UP, setup)
    return setup


def _observe(runs: BrokenRuns, tests: commands.CommandOutcome) -> ProofObservation:
    """Make all sources fail; then, if they have copies elsewhere, only those: green tests load the copies."""
    slot = runs.slot
    copies = detect.find_other_copies(slot.path, slot.root, _find_programs(slot), tuple(runs.broken), slot.names)
    whole = runs.break_all()
    idle = _unrun_command(slot, tests)
    copied = {copy.text: sources for copy in copies if (sources := copy.choose_sources(runs.broken, slot.root))}
    # Where all sources have a copy, the run above has shown what these tests load.
    some = frozenset[str]().union(*(names for names in copied.values() if len(names) < len(runs.broken)))
    is_noticed = runs.notices(sorted(some)) if some and whole.exit_status == 1 else whole.exit_status == 1
    texts = tuple(copied)
    return ProofObservation(
        whole.exit_status,
        tuple(runs.broken),
        elsewhere=texts if is_noticed is False and whole.exit_status is not None else (),
        lines_with_path=_find_root_mentions(slot) if whole.exit_status == 0 else (),
        copies=texts if is_noticed is None else (),
        green=(*whole.green, *([idle] if idle is not None else [])),
    )


def _find_programs(slot: ProofSlot) -> tuple[Path, ...]:
    """Return the programs that the commands and their files name, and the usual interpreters of Python."""
    environment = slot.plan.environment
    path = commands.command_environment(slot.root, environment).get("PATH", "")
    words = dict.fromkeys(word for text in slot.texts for word in re.findall(r"[^\s'\"=;&|()<>]+", text))
    named = (slot.path / word if "/" in word else shutil.which(word, path=path) for word in (*words, "python3"))
    own = [Path(environment) / "bin" / "python3"] if environment else []
    return (*(Path(program) for program in named if program), Path.home() / ".local" / "bin" / "python3", *own)


def _run_tests(
    worktrees: Worktrees,
    runs: BrokenRuns,
    result: ProofResult,
    tracked_files: TreeSnapshot,
    variables: Mapping[str, str],
) -> ProofResult:
    """Run the tests as a session does, with a brief in place. Red ones run again to find out what makes them red: the
    brief, the variables of gates, or neither."""
    slot, plan = runs.slot, runs.slot.plan
    snapshot, files = tracked_files, dict[str, bytes]()

    def run(log: str, *, brief: bool, drop: bool) -> commands.CommandOutcome:
        nonlocal snapshot, files
        given = {name: text for name, text in variables.items() if not (drop and name in plan.gate_environment)}
        presets = plan.presets if brief else ()
        with instructions_file.written_sample(worktrees.paths, worktrees.git, slot.git, presets) as contents:
            if contents:  # the git of a box has its own copy of what hides a brief
                commands.update_git(worktrees.paths, slot.git, plan.config)
            outcome = slot.run_command(plan.command, log, given)
        files = files or contents
        snapshot = tree_snapshot.accept_rewritten(slot.git, snapshot, contents)
        return outcome

    def run_again(name: str, *, brief: bool = False, drop: bool = False) -> commands.CommandOutcome:
        """Run them on the files as they were before the first run."""
        runs.remove_new_files()
        tree_snapshot.restore_files(slot.git, snapshot, tree_snapshot.find_changes(slot.git, snapshot))
        return run(f"baseline-tests-{name}.log", brief=brief, drop=drop)

    tests = red = run("baseline-tests.log", brief=True, drop=False)
    may_drop, seen = bool(plan.may_drop_variables and plan.gate_environment), ""
    drops = False
    if tests.exit_status not in (0, None) and (may_drop or files):
        bare = run_again("without-variables" if may_drop else "without-brief", drop=may_drop)
        # With another cause, report the output of the run without a brief: it shows only failures of the project.
        tests = bare if bare.passed or files else red
        if bare.passed:
            drops = may_drop and not (files and run_again("without-brief").passed)
            if drops and files:
                red = run_again("with-brief", brief=True, drop=True)
            if files and not red.passed:
                seen = _describe_difference(red, bare, files)
    changes = tree_snapshot.find_changes(slot.git, snapshot)
    return replace(result, tests=tests, changes=changes, drops_variables=drops, seen_brief=seen)


def _describe_difference(red: commands.CommandOutcome, green: commands.CommandOutcome, files: Iterable[str]) -> str:
    """Return the files, and the first line that only the red run printed; one that names a file goes first."""
    usual = green.tail(commands.SEARCHED_LINES).splitlines()
    lines = [line.strip() for line in red.tail(commands.SEARCHED_LINES).splitlines() if line not in usual]
    naming = [line for line in lines if any(file in line for file in files)]
    line = next(filter(None, (*naming, *lines)), f"exit {red.exit_status}")
    return f"{', '.join(files)}: {line[:200]}"


def _base_of(slot: ProofSlot) -> str:
    """The commit that the run with good sources gets as LIZA_BASE: the first parent, or the commit without a parent."""
    return slot.git.find_commit(f"{slot.commit}^") or slot.commit


def _unrun_command(slot: ProofSlot, tests: commands.CommandOutcome) -> GreenPart | None:
    """Return the command if its test runners ran no test on good sources, though it does not look for changes."""
    if command_parts.examines_changes(slot.texts) or "LIZA_BASE" in "".join(slot.texts):
        return None
    output = log_file.read_tail(tests.log)
    if command_parts.ran_tests(output) is not False:
        return None
    shape = command_parts.find_shape(command_parts.PartContext("", slot.texts, output))
    return GreenPart(slot.plan.command, shape.removeprefix("it ran no test: "), runs_no_test=True)


def _broken_sources(slot: ProofSlot) -> dict[str, str]:
    """New texts of the tracked sources that a proof makes fail."""
    texts = {}
    for line in slot.tracked:
        mode, name = line.partition(" ")[0], line.partition("\t")[2]
        if not mode.startswith("100") or not (slot.path / name).is_file():
            continue  # a link, a submodule, or left out of a sparse checkout
        text = breakage.broken_source(name, _first_line(slot.path / name))
        if text is not None:
            texts[name] = text
    plan = slot.plan
    commands_run = (plan.command, plan.setup or "", *(gate.command for gate in plan.gates))
    tested = command_parts.choose_tested(texts, commands_run, slot.definitions)
    return {name: texts[name] for name in tested}


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_FIRST_LINE_BYTES).partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    except OSError:
        return ""


def _find_root_mentions(slot: ProofSlot) -> tuple[str, ...]:
    """Find the path of the person's checkout in the command, the set-up and tracked lines; return up to 6 places."""
    root, plan = slot.root, slot.plan
    mentions = [
        f"`{text}`" for text in (plan.command, plan.setup) if text and test_proof.contains_path(text, str(root))
    ]
    output = slot.git.run("grep", "-n", "-I", "-F", "-e", str(root), codes=(0, 1)).stdout.decode(errors="replace")
    for name, number, text in (line.split(":", 2) for line in output.splitlines() if line.count(":") > 1):
        if not test_proof.is_documentation(name) and test_proof.contains_path(text, str(root)):
            mentions.append(f"{name}:{number}")
    return tuple(mentions[:6])


def final_outcome(result: ProofResult) -> ProofOutcome:
    """Outcome of a proof; NotProved if the tests were red before it."""
    return result.outcome or NotProved(test_proof.RED_REASON)
