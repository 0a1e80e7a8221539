"""Make generated files again that conflict, and only they: the files of the target branch are taken, and the command of
``config.generated`` runs in the merge slot, in a box as the tests, with their network and time limit.

The result is part of the candidate, which is tested as any other. Nothing is recorded before that: what a killed merger
left in the slot is removed with the next candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from liza.crew.crew import Crew
from liza.git import candidates, reset, slot_setup
from liza.git.candidates import ConflictingMerge, ResolvedMerge
from liza.git.runner import Git
from liza.merging import candidate_tests
from liza.merging.candidate_tests import CandidateRun, GateTiming, PreparedMergeSlot
from liza.merging.rules import generated_files
from liza.merging.rules.generated_files import GeneratorRun
from liza.model import history_events
from liza.model.configuration import Config
from liza.model.errors import MergeConflict, NotRegularFile
from liza.model.gates import GENERATOR_RUN, GateOutcome
from liza.project import commands, listeners, tree_snapshot
from liza.system import crash_points, untrusted_files
from liza.text.undecoded import list_names

_OUTPUT_LINES = 12
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")


class Remaking:
    """Resolve the conflicts of one candidate in generated files. ``name`` is part of the name of the log. ``text``: the
    files that were made again, and by which commands; empty if there was no such conflict."""

    def __init__(self, crew: Crew, name: str) -> None:
        self.text = ""
        self._crew = crew
        self._config = crew.board.read().config
        self._log = crew.paths.logs / f"generated-{name.replace('/', '-')}.log"
        self._name = name

    def resolve(self, merge: ConflictingMerge) -> ResolvedMerge | None:
        """Return the merge with its files made again; None if it needs a person or a coder. Raises MergeConflict if a
        command fails or its result cannot be used, GitFailed, OSError."""
        runs = generated_files.plan_runs(self._config.generated, merge.files)
        start = candidates.take_files_of_target(self._crew.git, merge) if runs else None
        if not runs or start is None:
            return None
        (slot,) = candidate_tests.prepare_slots(self._crew, self._name, start, 1)
        git = self._crew.worktrees.slot_git(slot.name)
        try:
            tree = self._make(slot, git, runs, merge)
        finally:
            # What the commands left is no agent's work: the next reset of the slot must not save it.
            reset.discard_changes(git)
        crash_points.point("merge", "remade")
        self.text = generated_files.describe_made(runs)
        return ResolvedMerge(tree, generated_files.format_trailers(runs))

    def _make(self, slot: PreparedMergeSlot, git: Git, runs: Sequence[GeneratorRun], merge: ConflictingMerge) -> str:
        """Run the commands in a slot at the merge, and return the tree with their result. Raises MergeConflict."""
        refuse = partial(_refuse, merge)
        before = slot_setup.list_unignored(git)
        for run in runs:
            failure = self._run(slot.name, git, run, merge)
            if failure is not None:
                raise refuse(failure)
        title = ", ".join(f"`{run.title}`" for run in runs)
        # Before git reads them: it reads no pipe.
        self._check(slot.name, merge.files, title, refuse)
        changes = tree_snapshot.find_changes(git, slot.files)
        added = [name for name in slot_setup.list_unignored(git) if name not in before]
        names, foreign = generated_files.find_made(self._config.generated, runs, changes, added)
        if changes.head is not None:
            raise refuse(f"{title} left HEAD at {changes.head[:12]}, not at the merge")
        if foreign:
            raise refuse(f"{title} also changed {list_names(foreign)}, which config.generated does not have for it")
        self._check(slot.name, [name for name in names if not name.endswith("/")], title, refuse)
        if names:
            git.out("--literal-pathspecs", "add", "-A", "--", *names)
        return git.out("write-tree", "--missing-ok")

    def _run(self, slot: str, git: Git, run: GeneratorRun, merge: ConflictingMerge) -> str | None:
        """Run one command. Return why it failed, with the end of its output; None if it did not."""
        crew, config = self._crew, self._config
        record = partial(
            candidate_tests.record_timing, crew, CandidateRun(self._name, merge.theirs, merge.expected, "")
        )
        record(GateTiming(GENERATOR_RUN, GateOutcome.RUNNING, 0.0))
        box = commands.open_box(crew.paths, git, config)
        result = commands.run_command(
            run.shell_command,
            crew.paths.slot(slot),
            self._log,
            config.integration_timeout,
            crew.paths.root,
            config.environment,
            box=box,
        )
        record(GateTiming(GENERATOR_RUN, GateOutcome.GREEN if result.passed else GateOutcome.RED, result.seconds))
        if result.passed:
            return None
        why = "did not end in time" if result.exit_status is None else f"exit {result.exit_status}"
        needs = listeners.find_needs(result.tail(_OUTPUT_LINES), crew.paths).text if box is not None else ""
        lacks = (
            "it has no network (config.network is off)" if commands.is_isolated(config) else "",
            f"a box does not give what it needs: {needs}" if needs else "",
        )
        what = "; ".join(filter(None, (f"`{run.title}` cannot make {list_names(run.files)} again: {why}", *lacks)))
        return history_events.format_failure(
            what, str(self._log.relative_to(crew.paths.root)), result.tail(_OUTPUT_LINES)
        )

    def _check(self, slot: str, names: Iterable[str], title: str, refuse: Callable[[str], MergeConflict]) -> None:
        """Raise MergeConflict for a file that cannot be used."""
        for name in names:
            fault = self._find_fault(slot, name)
            if fault is not None:
                raise refuse(f"{title}: {list_names((name,))} {fault}")

    def _find_fault(self, slot: str, name: str) -> str | None:
        """Return why a file that was made again cannot be used, None if it can."""
        try:
            with untrusted_files.open_to_read(self._crew.paths.slot(slot) / name) as file:
                return "has conflict markers" if any(line.startswith(_MARKERS) for line in file) else None
        except FileNotFoundError:
            return "is gone"
        except NotRegularFile:
            return "is no regular file any more"


def _refuse(merge: ConflictingMerge, detail: str) -> MergeConflict:
    return MergeConflict(merge.text, merge.files, detail=detail)


def is_generated(config: Config) -> Callable[[str], bool]:
    """Return the function that says whether a command makes a file."""
    return lambda name: generated_files.find_command(config.generated, name) is not None


def describe_conflict(crew: Crew, base: str, commit: str, conflict: MergeConflict) -> str:
    """Return what who resolves a conflict of ``commit`` with ``base`` needs beside the names of the files: the
    conflicting lines, what the commands for generated files printed, and how such files are made. Raises GitFailed."""
    config = crew.board.read().config
    makes = is_generated(config)
    hunks = candidates.read_conflict_hunks(crew.git, base, commit, [name for name in conflict.files if not makes(name)])
    steps = generated_files.describe_commands(config.generated, conflict.files)
    return "\n".join(filter(None, (conflict.detail, *steps, hunks)))
