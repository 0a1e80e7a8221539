"""Testing a candidate in the merger's slot: clean, set up, and with an eye on the refs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.project import commands
from liza.repo.merge import merge_refs
from liza.repo.slots import slot_setup
from liza.rules.merging import merge_failures, merge_rules

MERGE_SLOT = "merge"


@dataclass(frozen=True)
class CandidateResult:
    """What the tests said of a candidate. ``red`` is what its coder must know, None where it may be published;
    ``tested`` is False where no command is configured; ``moved`` names the refs that the tests moved, or
    that may have been moved by somebody else meanwhile: ``sure`` is False then. ``taken`` is the commit of integration
    before it was deleted or moved back; None where it was not."""

    failure: str | None
    tested: bool
    moved_refs: tuple[str, ...] = ()
    rewound_from: str | None = None
    sure: bool = True

    def told(self, whose: str) -> str:
        """A sentence about the refs that moved during the tests of ``whose``."""
        names = ", ".join(self.moved_refs)
        if self.sure:
            return f"the tests of {whose} moved {names}"
        return f"{names} moved, or disappeared, while the tests of {whose} ran: the tests did that, or somebody else"


def run_candidate_tests(crew: Crew, name: str, candidate: str, onto: str) -> CandidateResult:
    """Run set-up and tests on the candidate of ``name``, a merge with the branch ``onto``. Raises GitFailed, OSError.

    Until they pass the slot is marked: what a red or killed candidate leaves there is removed before the next one.
    """
    config = crew.board.read().config
    if not config.has_tests:
        return CandidateResult(None, False)
    name = name.replace("/", "-")  # it may have the name of a branch in it, and it names the log
    crew.worktrees.detach(MERGE_SLOT, candidate, f"merge-{name}")
    crew.worktrees.clean(MERGE_SLOT, config.merge_clean, config.sandbox_keep)
    slot_setup.mark_tests_started(crew.worktrees.slot_git(MERGE_SLOT))
    before, known = (
        merge_refs.snapshot_refs(crew.git),
        merge_refs.list_commits_made(crew.worktrees.slot_git(MERGE_SLOT)),
    )
    red = set_up_slot(crew, MERGE_SLOT) or _run_tests(crew, name, onto)
    made = merge_refs.list_commits_made(crew.worktrees.slot_git(MERGE_SLOT)) - known
    changes = merge_refs.find_ref_changes(crew.git, before, candidate, made)
    if red is None:
        slot_setup.mark_tests_passed(crew.worktrees.slot_git(MERGE_SLOT))
    branch = f"refs/heads/{onto}"
    taken = before.get(branch) if merge_rules.is_branch_rewound(changes, branch) else None
    return CandidateResult(red, True, merge_rules.refs_moved_by_tests(changes), taken, merge_rules.is_sure(changes))


def _run_tests(crew: Crew, name: str, onto: str) -> str | None:
    """Run the tests in the slot: what is wrong, or None."""
    config = crew.board.read().config
    command, log = str(config.integration_command), crew.paths.logs / f"merge-{name}.log"
    done = commands.run_command(
        command, crew.paths.slot(MERGE_SLOT), log, config.integration_timeout, crew.paths.root, config.environment
    )
    if done.passed:
        return None
    how = "did not end in time" if done.exit_status is None else f"exit {done.exit_status}"
    return merge_failures.format_failure(
        f"{command}: {how} on the merge with {onto}", _display_path(crew, log), done.tail(12)
    )


def _display_path(crew: Crew, log: Path) -> str:
    return str(log.relative_to(crew.paths.root))


def set_up_slot(crew: Crew, slot: str) -> str | None:
    """Bring a slot's sandbox up to date: copies, then the set-up command if it is due; what is wrong, or None."""
    config = crew.board.read().config
    place, there = crew.paths.slot(slot), crew.worktrees.slot_git(slot)
    if not slot_setup.bring(crew.paths.root, there, config) or not config.sandbox_setup:
        return None
    log = crew.paths.logs / f"setup-{slot}.log"
    done = commands.run_command(
        config.sandbox_setup, place, log, config.integration_timeout, crew.paths.root, config.environment
    )
    if not done.passed:
        what = f"set-up failed: {config.sandbox_setup}: exit {done.exit_status}"
        return merge_failures.format_failure(what, _display_path(crew, log), done.tail(12))
    slot_setup.mark_setup_done(there, config.sandbox_setup, config.sandbox_setup_files)
    return None
