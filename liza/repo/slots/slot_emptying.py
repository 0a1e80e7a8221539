"""Empty slots: save what exists nowhere else, then reset. A slot that cannot be emptied is replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from liza.repo.slots import reset, slot_records, slot_setup, stuck_slots, submodules
from liza.repo.slots.salvage import create_salvage, salvage_head, salvage_if_needed, salvage_new_changes
from liza.repo.slots.salvage_submodules import salvage_before_reset
from liza.repo.slots.slot_access import SlotAccess
from liza.repo.slots.slot_records import SlotOwner
from liza.rules.errors import GitFailed

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
        return salvage_if_needed(self.slot_git(slot), *name, kept_in=(*self._protecting_refs(slot, owner), *kept_in))

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
        self._wipe(slot, git_dir, salvage_new_changes(self.slot_git(slot), *name, kept))

    def _wipe(self, slot: str, git_dir: Path, saved: str | None) -> None:
        """Empty a slot whose content is saved (``saved``), if there is anything to discard."""
        git = self.slot_git(slot)
        ended = reset.end_operations(git, git_dir)
        stripped = reset.strip_briefs(git)
        if saved is not None or ended or stripped:
            reset.discard_changes(git)

    def _save_submodules(self, slot: str, owner: SlotOwner | None) -> tuple[str, ...]:
        """Save what a reset of the submodules would discard. Return the paths of the saved repositories.

        Call this before the slot is emptied: afterwards git may not list a submodule that the agent added.
        """
        git = self.slot_git(slot)
        if not submodules.may_exist(git):
            return ()
        name = (slot, "unknown") if owner is None else (owner.task, owner.run)
        salvage_before_reset(git, *name)
        return submodules.list_fetched(git)

    def _reset_submodules(self, slot: str, saved: tuple[str, ...]) -> None:
        """Reset the submodules to the commit that was checked out. Remove those of ``saved`` that it does not have."""
        git = self.slot_git(slot).with_timeout(600)
        if saved:
            git.out("--literal-pathspecs", "clean", "-ffd", "--quiet", "--", *saved)
        if submodules.may_exist(git):
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
        """Run ``work``, which empties a slot, and retry it if file permissions made it fail.

        The first retry follows after permissions were loosened. If that is not enough, the slot is retired with all its
        files and a new one is created before the second retry. Raises what ``work`` raises for any other reason.
        """
        path = self.paths.slot(slot)
        try:
            return work()
        except (GitFailed, OSError):
            if (
                not path.is_dir()
                or path.is_symlink()
                or not (stuck_slots.loosen_permissions(path) or stuck_slots.is_stuck(path))
            ):
                raise
        try:
            return work()
        except (GitFailed, OSError):
            if not stuck_slots.is_stuck(path):
                raise
        self._replace_slot(slot)
        return work()

    def _replace_slot(self, slot: str) -> None:
        """Retire a slot and create a new one at the same commit, with the same owner. Raises GitFailed."""
        _, owner = self._open_slot(slot)
        git = self.slot_git(slot)
        head = git.out("rev-parse", "--verify", "HEAD^{commit}")
        if owner is not None:
            salvage_head(git, owner.task, owner.run, self._protecting_refs(slot, owner))
        stuck_slots.retire_slot(self.paths.slot(slot))
        self.add(slot, head)
        slot_records.write_owner(self._open_slot(slot)[0], owner)
