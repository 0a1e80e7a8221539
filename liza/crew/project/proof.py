"""Prove that the tests test the worktree they run in: run them in a throw-away slot, then with failing sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from liza.crew.project import commands, import_traces, installed_packages, tree_snapshot
from liza.repo import sparse_checkout
from liza.repo.runner import Git
from liza.repo.slots import slot_setup, stuck_slots
from liza.repo.slots.pool import PROOF_SLOT, Worktrees
from liza.rules.project import breakage, test_proof
from liza.rules.project.package_records import ChangedPackageFile
from liza.rules.project.test_proof import NotProved, ProofObservation, ProofOutcome
from liza.rules.project.tree_changes import TreeChanges
from liza.rules.value_classes import Value, replace
from liza.system import atomic

_FIRST_LINE_BYTES = 256  # bytes of a file that are read for its first line


class ProofPlan(Value):
    """Plan of a proof: the project's commands, the files to copy, ``config.environment``, and the limit in seconds.

    ``is_full``: in a full checkout, not as sparse as the person's. Without a ``command`` only the set-up runs.
    ``hint`` is the command for the error that the tests test another checkout, ``red_hint`` the one for red tests.
    ``may_drop_variables``: tests that are red with ``gate_environment`` run once without it.
    """

    command: str
    setup: str | None = None
    copied_files: Sequence[str] = ()
    environment: str | None = None
    gate_environment: Mapping[str, str] = MappingProxyType({})
    is_full: bool = True
    limit: float = 1800
    hint: str = ""
    red_hint: str = ""
    may_drop_variables: bool = False


class ProofStep(Enum):
    """A command of the project that a proof runs."""

    SET_UP = "set-up"
    TESTS = "tests"
    BROKEN_TESTS = "tests with failing sources"


class ProofReport(Value):
    """Functions that are called before a step, and after it with its outcome. If ``end`` raises, the proof ends."""

    begin: Callable[[ProofStep], None] = lambda step: None
    end: Callable[[ProofStep, commands.CommandOutcome], None] = lambda step, outcome: None


NO_REPORT = ProofReport()


class ProofResult(Value):
    """Results of the set-up and the tests in the slot, and of the run with failing sources.

    ``tests`` is None if the set-up failed, or without a test command. ``outcome`` is None if the tests were not green
    or no proof was requested. ``changes``: tracked files that the set-up and the tests wrote. ``packages``: installed
    files that differ from the records of their packages after the set-up. ``left``: untracked files of the set-up that
    git does not ignore. ``drops_variables``: the tests are green only without ``gate_environment``.
    """

    setup: commands.CommandOutcome | None = None
    tests: commands.CommandOutcome | None = None
    outcome: ProofOutcome | None = None
    changes: TreeChanges = TreeChanges()
    packages: tuple[ChangedPackageFile, ...] = ()
    left: tuple[str, ...] = ()
    drops_variables: bool = False


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
        sparse_checkout.make_full(worktrees.slot_git(PROOF_SLOT))
    try:
        return _run_in_slot(worktrees, plan, logs, prove and bool(plan.command), always, report)
    finally:
        worktrees.discard(PROOF_SLOT)


def _run_in_slot(
    worktrees: Worktrees,
    plan: ProofPlan,
    logs: Path,
    prove: bool,
    always: bool,
    report: ProofReport,
) -> ProofResult:
    root, slot = worktrees.paths.root, worktrees.paths.slot(PROOF_SLOT)
    git = worktrees.slot_git(PROOF_SLOT)
    slot_setup.copy_files(root, git, plan.copied_files)
    tracked = git.names("ls-files", "-s", "-z") if prove else ()
    broken = _broken_sources(tracked, slot, plan)
    if not (broken or always):
        return ProofResult(outcome=test_proof.judge_proof(ProofObservation(None), str(root), plan.hint))
    setup = None
    tracked_files = tree_snapshot.take_snapshot(git)
    if plan.setup:
        report.begin(ProofStep.SET_UP)
        setup = commands.run_command(plan.setup, slot, logs / "baseline-setup.log", plan.limit, root, plan.environment)
        report.end(ProofStep.SET_UP, setup)
        if not setup.passed:
            return ProofResult(setup)
    left = slot_setup.list_unignored(git)
    if not plan.command:
        return ProofResult(setup, left=left)
    packages = installed_packages.find_changed_files(git, plan.environment)
    site = _proof_site(root, slot, broken, [line.partition("\t")[2] for line in tracked])
    with import_traces.record_imports(site) as (logging_variables, log):
        variables = {**plan.gate_environment, **(logging_variables if broken else {})}
        files_before = _untracked(git)
        report.begin(ProofStep.TESTS)
        tests = commands.run_command(
            plan.command, slot, logs / "baseline-tests.log", plan.limit, root, plan.environment, variables
        )
        drops_variables = False
        if plan.may_drop_variables and plan.gate_environment and tests.exit_status not in (0, None):
            _remove_new_files(git, slot, files_before)
            tree_snapshot.restore_files(git, tracked_files, tree_snapshot.find_changes(git, tracked_files))
            kept = {name: value for name, value in variables.items() if name not in plan.gate_environment}
            log_without = logs / "baseline-tests-without-variables.log"
            again = commands.run_command(plan.command, slot, log_without, plan.limit, root, plan.environment, kept)
            if again.passed:
                tests, variables, drops_variables = again, kept, True
        report.end(ProofStep.TESTS, tests)
        changes = tree_snapshot.find_changes(git, tracked_files)
        if not tests.passed or not prove:
            return ProofResult(
                setup, tests, changes=changes, packages=packages, left=left, drops_variables=drops_variables
            )
        texts = (plan.command, plan.setup or "", *_task_runner_texts(slot))
        path = commands.command_environment(root, plan.environment).get("PATH", "")
        observation = import_traces.read_observation(log, site, texts, path, plan.environment)
        if broken and not (observation.checkout or observation.copies):
            _remove_new_files(git, slot, files_before)
            for name, text in broken.items():
                _replace_file(slot, name, text)
            proof_log = logs / "proof-tests.log"
            report.begin(ProofStep.BROKEN_TESTS)
            exit_status = commands.run_command(
                plan.command, slot, proof_log, plan.limit, root, plan.environment, variables
            ).exit_status
            observation = replace(
                observation,
                exit_status=exit_status,
                lines_with_path=_find_root_mentions(git, root, plan) if exit_status == 0 else (),
            )
    proof_outcome = test_proof.judge_proof(observation, str(root), plan.hint)
    return ProofResult(setup, tests, proof_outcome, changes, packages, left, drops_variables)


def _proof_site(root: Path, slot: Path, failing: Iterable[str], tracked: Sequence[str]) -> import_traces.ProofSite:
    build_files = tuple(name for name in tracked if PurePosixPath(name).name in test_proof.BUILD_FILES)
    broken = tuple(failing)
    return import_traces.ProofSite(root, slot, broken, test_proof.installed_suffixes(broken, tracked), build_files)


def _untracked(git: Git) -> frozenset[str]:
    return frozenset(git.names("ls-files", "--others", "--exclude-standard", "-z"))


def _remove_new_files(git: Git, slot: Path, before: frozenset[str]) -> None:
    """Remove the new files of the tests that git does not ignore: they alone could make the next run red."""
    stuck_slots.loosen_permissions(slot)
    for name in _untracked(git) - before:
        path = slot / name
        if not path.is_dir() and path.parent.resolve() == slot.resolve() / PurePosixPath(name).parent:
            path.unlink(missing_ok=True)


def _broken_sources(tracked: Sequence[str], slot: Path, plan: ProofPlan) -> dict[str, str]:
    """New texts of the tracked sources that a proof makes fail. ``tracked`` is the output of ``git ls-files -s``."""
    mentioned = "\n".join((plan.command, plan.setup or "", *_task_runner_texts(slot)))
    texts = {}
    for line in tracked:
        mode, name = line.partition(" ")[0], line.partition("\t")[2]
        if not mode.startswith("100"):
            continue  # a link, or a submodule
        text = breakage.broken_source(name, _first_line(slot / name), mentioned)
        if text is not None:
            texts[name] = text
    return texts


def _task_runner_texts(slot: Path) -> Iterator[str]:
    """Texts of task runner files, which define the commands that the test command runs."""
    import json

    for name in ("Makefile", "makefile", "GNUmakefile", "justfile", "tox.ini", "noxfile.py"):
        if (slot / name).is_file():
            yield (slot / name).read_text(errors="replace")
    try:
        scripts = json.loads((slot / "package.json").read_text())["scripts"]
        yield "\n".join(str(script) for script in scripts.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_FIRST_LINE_BYTES).partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    except OSError:
        return ""


def _replace_file(slot: Path, name: str, text: str) -> None:
    """Replace a file in the slot by a new one. Never write through a link: it may lead to a file of the person."""
    path = slot / name
    if not path.is_file() or path.parent.resolve() != slot.resolve() / PurePosixPath(name).parent:
        return
    mode = path.lstat().st_mode & 0o777 if not path.is_symlink() else 0o644
    atomic.write(path, text.encode(), mode, sync=False)


def _find_root_mentions(git: Git, root: Path, plan: ProofPlan) -> tuple[str, ...]:
    """Find the path of the person's checkout in the command, the set-up and tracked lines; return up to 6 places."""
    mentions = [
        f"`{text}`" for text in (plan.command, plan.setup) if text and test_proof.contains_path(text, str(root))
    ]
    output = git.run("grep", "-n", "-I", "-F", "-e", str(root), codes=(0, 1)).stdout.decode(errors="replace")
    for name, number, text in (line.split(":", 2) for line in output.splitlines() if line.count(":") > 1):
        if not test_proof.is_documentation(name) and test_proof.contains_path(text, str(root)):
            mentions.append(f"{name}:{number}")
    return tuple(mentions[:6])


def final_outcome(result: ProofResult) -> ProofOutcome:
    """Outcome of a proof; NotProved if the tests were red before it."""
    return result.outcome or NotProved("the tests are red as they are")
