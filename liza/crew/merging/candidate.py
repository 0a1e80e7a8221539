"""Test a candidate in the merge slot: clean, set up, run the tests, and detect refs that the tests moved."""

from __future__ import annotations

from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.project import commands
from liza.repo.merge import merge_refs
from liza.repo.slots import slot_setup
from liza.rules.merging import merge_failures, merge_rules
from liza.rules.value_classes import Value

MERGE_SLOT = "merge"


class CandidateResult(Value):
    """Result of the tests of a candidate.

    ``failure`` is the message for the coder, None if the candidate may be published. ``tested`` is False if no test
    command is configured. ``moved_refs`` are the refs that moved during the tests; ``sure`` is False if another process
    may have moved them. ``rewound_from`` is the commit of integration before it was deleted or moved back, else None.
    """

    failure: str | None
    tested: bool
    moved_refs: tuple[str, ...] = ()
    rewound_from: str | None = None
    sure: bool = True

    def told(self, whose: str) -> str:
        """Return a sentence about the refs that moved during the tests of ``whose``."""
        names = ", ".join(self.moved_refs)
        if self.sure:
            return f"the tests of {whose} moved {names}"
        return f"{names} moved, or disappeared, while the tests of {whose} ran: the tests or another process did that"


def run_candidate_tests(crew: Crew, name: str, candidate: str, onto: str) -> CandidateResult:
    """Run set-up and tests on the candidate of ``name``, a merge with the branch ``onto``.

    The slot is marked until the tests pass, so that the files of a failed or killed run are removed before the next
    one. Raises GitFailed, OSError.
    """
    config = crew.board.read().config
    if not config.has_tests:
        return CandidateResult(None, False)
    name = name.replace("/", "-")  # `name` may contain the name of a branch; it becomes a file name
    crew.worktrees.detach(MERGE_SLOT, candidate, f"merge-{name}")
    crew.worktrees.clean(MERGE_SLOT, config.merge_clean, config.sandbox_keep)
    slot_setup.mark_tests_started(crew.worktrees.slot_git(MERGE_SLOT))
    before, commits_before = (
        merge_refs.snapshot_refs(crew.git),
        merge_refs.list_commits_made(crew.worktrees.slot_git(MERGE_SLOT)),
    )
    failure = set_up_slot(crew, MERGE_SLOT) or _run_tests(crew, name, onto)
    commits_made = merge_refs.list_commits_made(crew.worktrees.slot_git(MERGE_SLOT)) - commits_before
    changes = merge_refs.find_ref_changes(crew.git, before, candidate, commits_made)
    if failure is None:
        slot_setup.mark_tests_passed(crew.worktrees.slot_git(MERGE_SLOT))
    branch = f"refs/heads/{onto}"
    rewound_from = before.get(branch) if merge_rules.is_branch_rewound(changes, branch) else None
    return CandidateResult(
        failure, True, merge_rules.refs_moved_by_tests(changes), rewound_from, merge_rules.is_sure(changes)
    )


def _run_tests(crew: Crew, name: str, onto: str) -> str | None:
    """Run the tests in the slot. Return the failure message, or None."""
    config = crew.board.read().config
    command, log = str(config.integration_command), crew.paths.logs / f"merge-{name}.log"
    result = commands.run_command(
        command, crew.paths.slot(MERGE_SLOT), log, config.integration_timeout, crew.paths.root, config.environment
    )
    if result.passed:
        return None
    outcome = "did not end in time" if result.exit_status is None else f"exit {result.exit_status}"
    return merge_failures.format_failure(
        f"{command}: {outcome} on the merge with {onto}", _display_path(crew, log), result.tail(12)
    )


def _display_path(crew: Crew, log: Path) -> str:
    return str(log.relative_to(crew.paths.root))


def set_up_slot(crew: Crew, slot: str) -> str | None:
    """Copy files into a slot and run the set-up command if it is due. Return the failure message, or None."""
    config = crew.board.read().config
    path, slot_git = crew.paths.slot(slot), crew.worktrees.slot_git(slot)
    if not slot_setup.bring(crew.paths.root, slot_git, config) or not config.sandbox_setup:
        return None
    log = crew.paths.logs / f"setup-{slot}.log"
    result = commands.run_command(
        config.sandbox_setup, path, log, config.integration_timeout, crew.paths.root, config.environment
    )
    if not result.passed:
        summary = f"set-up failed: {config.sandbox_setup}: exit {result.exit_status}"
        return merge_failures.format_failure(summary, _display_path(crew, log), result.tail(12))
    slot_setup.mark_setup_done(slot_git, config.sandbox_setup, config.sandbox_setup_files)
    return None
