"""Empty slots: save what exists nowhere else, then reset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from liza.git import leftovers, reset, run_git, run_import, slot_records, slot_setup
from liza.git.git_config import git_dirs
from liza.git.reset import salvage_before_reset
from liza.git.run_git import ImportRefused
from liza.git.salvage import (
    SalvageTarget,
    create_salvage,
    salvage_if_needed,
    salvage_new_changes,
    salvage_refs,
)
from liza.git.slot_records import SlotOwner
from liza.git.worktree_creation import SlotAccess
from liza.model.errors import GitFailed
from liza.system.locks import lock_path

T = TypeVar("T")


class SlotEmptying(SlotAccess):
    """The steps that empty a slot. Each saves the content before it discards anything."""

    def _save(
        self, slot: str, owner: SlotOwner | None, task: str, run: str | None, kept_in: tuple[str, ...] = ()
    ) -> str | None:
        """Save the content of a slot if necessary. Return the ref of the salvage, or None."""
        # The owner is unknown: use the slot's name, so that no task restores the salvage as its own work.
        work_of = slot_records.content_owner(owner)
        name = (work_of.task, work_of.run) if work_of is not None else (task, run) if run else (slot, "unknown")
        return self.salvage(slot, *name, kept_in=(*self._protecting_refs(slot, owner), *kept_in))

    def salvage(self, slot: str, task: str, run: str, kept_in: tuple[str, ...]) -> str | None:
        """Save the content of a slot if necessary, as ``salvage_if_needed`` does, after the import of its commits.

        What a box has damaged so that it cannot be read is left out; the files of the slot are saved. Raises GitFailed.
        """
        target = self._salvage_target(slot)
        if target is None:
            return salvage_if_needed(self.slot_git(slot), task, run, kept_in)
        with suppress(ImportRefused):
            self.import_run(slot)
        git = self.open_git(slot)
        try:
            saved = salvage_if_needed(git, task, run, kept_in, target)
        except GitFailed:
            leftovers.remove_pipes(self.paths.slot(slot))
            saved = salvage_if_needed(self.slot_git(slot), task, run, kept_in)
        salvage_refs(git, task, run, target)
        return saved

    def leave_box(self, slot: str) -> None:
        """Make the slot's own git count: its next session has no box. What only the last box has is saved.

        Raises GitFailed, Missing, OSError.
        """
        run, target = self.run_of_git(slot), self._salvage_target(slot)
        if run is None or target is None:
            return
        git = self.slot_git(slot)
        owner = slot_records.content_owner(slot_records.find_owner(git_dirs(git)[0]))
        with suppress(ImportRefused):
            self.import_run(slot)
        salvage_refs(self.open_git(slot), slot if owner is None else owner.task, run, target)
        run_git.leave_run_git(git)

    def _salvage_target(self, slot: str) -> SalvageTarget | None:
        """Return where salvages of a slot go that are made in the git directory of a run; None without one."""
        if self.run_of_git(slot) is None:
            return None

        def take(commit: str) -> None:
            newest = self.git.find_commit(f"refs/heads/{self.integration}")
            with lock_path(self._import_lock(slot)):
                run_import.import_commit(self.git, self._run_store(slot), commit, (newest,) if newest else ())

        return SalvageTarget(self.git, take)

    def _protecting_refs(self, slot: str, owner: SlotOwner | None) -> tuple[str, ...]:
        """Return the refs and commits one of which must contain HEAD; otherwise HEAD is saved.

        The commit of a detached slot (owner task equals slot) was chosen by Liza and is protected elsewhere.
        """
        own_commit = (owner.commit,) if owner is not None and owner.task == slot and owner.commit else ()
        return (*own_commit, f"refs/heads/{self.integration}")

    def _empty_at(self, slot: str, git_dir: Path, owner: SlotOwner, commit: str) -> None:
        """Save the content of a slot and its submodules, empty them, and detach the slot at ``commit``."""
        slot_records.remove_slot_locks(git_dir)
        saved = self._save_submodules(slot, owner)
        self._wipe(slot, git_dir, self._save(slot, owner, slot, owner.run if owner.task == slot else None))
        self._checkout(slot, owner, "--detach", commit)
        self._reset_submodules(slot, saved)

    def _empty_prepared(self, slot: str, git_dir: Path, owner: SlotOwner) -> None:
        """Empty a prepared slot. Files written since it was prepared belong to the previous owner."""
        slot_records.remove_slot_locks(git_dir)
        before = owner.before
        # Never the new owner: another claim of the task would restore the files of another task as its own.
        name = (before.task, before.run) if before is not None else (slot, "unknown")
        kept = self._protecting_refs(slot, before)
        is_boxed = self.run_of_git(slot) is not None
        saved = self.salvage(slot, *name, kept) if is_boxed else salvage_new_changes(self.slot_git(slot), *name, kept)
        self._wipe(slot, git_dir, saved)

    def _wipe(self, slot: str, git_dir: Path, saved: str | None) -> None:
        """Empty a slot whose content is saved (``saved``), if there is anything to discard."""
        git = self.slot_git(slot)
        ended = reset.end_operations(git, git_dir)
        stripped = reset.strip_briefs(git)
        is_boxed = self.run_of_git(slot) is not None
        # A run may have had another commit checked out than the one at the slot's HEAD.
        if saved is not None or ended or stripped or is_boxed:
            reset.discard_changes(git)
        run_git.leave_run_git(git)

    def _save_submodules(self, slot: str, owner: SlotOwner | None) -> tuple[str, ...]:
        """Save what a reset of the submodules would discard. Return the paths of the saved repositories.

        Call this before the slot is emptied: afterwards git may not list a submodule that the agent added.
        """
        git = self.open_git(slot)
        if not reset.may_have_submodules(git):
            return ()
        name = (slot, "unknown") if owner is None else (owner.task, owner.run)
        salvage_before_reset(git, *name, self._salvage_target(slot))
        return reset.list_fetched(git)

    def _reset_submodules(self, slot: str, saved: tuple[str, ...]) -> None:
        """Reset the submodules to the commit that was checked out. Remove those of ``saved`` that it does not have."""
        git = self.slot_git(slot).with_timeout(600)
        if saved:
            git.out("--literal-pathspecs", "clean", "-ffd", "--quiet", "--", *saved)
        if reset.may_have_submodules(git):
            slot_setup.empty_submodules(git, remove_foreign=False)

    def _checkout(self, slot: str, owner: SlotOwner, *where: str) -> None:
        """Switch a slot to another commit or branch."""
        git = self.slot_git(slot).with_timeout(600)
        done = git.run("switch", "--quiet", "--no-guess", "--no-overwrite-ignore", *where)
        if done.code != 0:
            # An ignored file is in the way of a tracked one: save it, then overwrite it.
            create_salvage(git, owner.task, owner.run)
            git.out("switch", "--quiet", "--no-guess", "--discard-changes", *where)

    def _retry_if_stuck(self, slot: str, work: Callable[[], T]) -> T:
        """Run ``work``, which empties a slot. If file permissions made it fail, loosen them and retry it once.

        Raises SystemRefused if that is not enough, and what ``work`` raises for any other reason.
        """
        path = self.paths.slot(slot)
        try:
            return work()
        except (GitFailed, OSError):
            if not path.is_dir() or path.is_symlink():
                raise
            if not leftovers.loosen_permissions(path) and not leftovers.is_stuck(path):
                raise
        with leftovers.explain_stuck(path):
            return work()
