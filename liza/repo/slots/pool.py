"""Slots: work trees made once, never moved, and handed from task to task.

A claim prepares a slot (nothing in it is changed, all of it is saved), and finishes it after the board says that the
claim holds. Finishing can be repeated until it was carried through. Git is told where each slot's git directory is, so
that nothing an agent puts at ``.git`` leads a reset somewhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from liza.repo import symbolic_refs
from liza.repo.config_pins import git_dirs
from liza.repo.merge.merges import Branch, find_branches
from liza.repo.ref_names import ref_conflict_error
from liza.repo.runner import Git
from liza.repo.slots import reset, slot_records, slot_setup, slots_directory, stuck_slots
from liza.repo.slots.salvage import create_salvage, salvage_head, salvage_if_needed, salvage_new_changes
from liza.repo.slots.salvage_restore import find_unrestored, list_uncommitted, mark_restored, restore_salvage
from liza.repo.slots.slot_records import SlotOwner
from liza.repo.survey import list_changed_files
from liza.rules.errors import GitFailed, Missing, NotOwner, Refused, SharedPathBlocked
from liza.rules.paths import Paths, branch_of
from liza.system.flock import lock_path

PROOF_SLOT = "proof"
"""The slot of which nothing is ever kept: in it sources are made to fail on purpose."""
T = TypeVar("T")


@dataclass(frozen=True)
class PreparedSlot:
    """What a claim will work on: the branch, the commit it starts from, whether unfinished files will be laid back."""

    branch: str
    base: str
    restores_files: bool


@dataclass(frozen=True)
class Worktrees:
    """The slots of one crew. ``integration`` is the branch that finished work is merged into."""

    paths: Paths
    git: Git
    integration: str = "integration"

    def add(self, slot: str, commit: str) -> None:
        """Have a slot, detached at ``commit`` if it is new; one that is there is left as it is.

        One process at a time; what a killed one left is removed first. Raises GitFailed, LockTimeout.
        """
        path = self.paths.slot(slot)
        with lock_path(self.paths.worktree_lock) as held:
            slot_records.refuse_links(path)
            admin = self._git_dir(slot)
            if admin is not None and not slot_records.is_half_made(admin):
                if path.is_dir():
                    return
                # The directory is gone and its records are not: git makes it anew over them only when forced twice.
                slot_records.write_owner(admin, None)
            elif admin is not None:
                slot_records.remove_half_made(self.git, path, admin)
            elif path.is_dir() and any(path.iterdir()):
                # git's records of it are gone and its files are not: who has use for the slot has to save them.
                slot_records.repair_gitfile(path, slot_records.recreate_record(path, self._common_dir, commit))
                self.slot_git(slot).out("read-tree", "HEAD")
                return
            slots_directory.ensure_directory(self.paths)
            # Whoever dies, the lock lasts as long as this git: nobody removes what it is still writing.
            git = self.git.inheriting(held).with_timeout(1800)
            git.out("worktree", "add", "--force", "--force", "--quiet", "--detach", str(path), commit)

    def prepare(self, slot: str, task: str, run: str, salvage_as: str | None = None) -> PreparedSlot:
        """Phase two of a claim: save what lies in the slot, and note whose it will be. Nothing is destroyed.

        The slot is made if it is not there. What is saved bears the task and run of the owner file; where there is
        none, this task and ``salvage_as``, or the slot and ``unknown``. Repeatable by the same run.
        Raises GitFailed when something cannot be saved, Refused when a person has the task's branch checked out.
        """
        branch = branch_of(task)
        # The pattern matches one name only, where the plain name would match all that is below it as well.
        known = find_branches(self.git, branch, self.integration, "tas[k]")
        self._refuse_blocked(branch, known)
        symbolic_refs.refuse_symbolic(self.git, f"refs/heads/{branch}")
        self._refuse_foreign_checkout(branch, known)
        base = self._start_commit(known, branch)
        self._ensure_slot(slot, base)
        with self._lock_slot(slot):
            admin, owner = self._open_slot(slot)
            if owner is not None and (owner.task, owner.run) == (task, run):
                return PreparedSlot(branch, owner.commit or base, owner.salvage is not None)
            ref = self._retry_if_stuck(slot, lambda: self._save(slot, owner, task, salvage_as))
            admin = self._open_slot(slot)[0]
            files = self._salvage_to_restore(owner, task, ref)
            before = None if owner is None else replace(owner, before=None)
            slot_records.write_owner(admin, SlotOwner(task, run, base, files, before=before))
        return PreparedSlot(branch, base, files is not None)

    def finish(self, slot: str, task: str, run: str) -> None:
        """After the claim holds: empty the slot, switch to the task's branch, lay unfinished files back, link it.

        Repeatable until carried through; after that nothing is touched, because an agent may be at work.
        Raises NotYours where the slot bears another run, GitFailed.
        """
        admin, owner = self._open_slot(slot)
        if owner is None or (owner.task, owner.run) != (task, run):
            raise NotOwner(
                f"slot {slot} belongs to {owner.run if owner else 'nobody'}, not to {run}", f"liza task show {task}"
            )
        if not owner.done:
            self._retry_if_stuck(slot, lambda: self._switch_to_task(slot, task, owner))
            admin = self._open_slot(slot)[0]
            if owner.salvage is not None:
                restore_salvage(self.slot_git(slot), owner.salvage)
                mark_restored(self.git, task, owner.salvage)
            if owner.before is not None and owner.before.task != task:
                slot_records.unlink_task(self.paths, owner.before.task, slot)
            slot_records.write_owner(admin, replace(owner, done=True, before=None))
        slot_records.link_task(self.paths, task, slot)

    def _switch_to_task(self, slot: str, task: str, owner: SlotOwner) -> None:
        """Empty a prepared slot, and switch it to the branch of the task."""
        branch = branch_of(task)
        known = find_branches(self.git, branch, self.integration)
        symbolic_refs.refuse_symbolic(self.git, f"refs/heads/{branch}")
        self._free_branch(slot, branch, known)
        self._empty_prepared(slot, self._open_slot(slot)[0], owner)
        start = () if branch in known else ("--no-track", "--create")
        end = () if branch in known else (owner.commit or self._start_commit(known, branch),)
        self._checkout(slot, owner, *start, branch, *end)

    def is_finished(self, slot: str, task: str, run: str) -> bool:
        """Whether ``finish`` was carried through for this claim. Raises GitFailed."""
        admin = self._git_dir(slot)
        owner = slot_records.find_owner(admin) if admin is not None and self.paths.slot(slot).is_dir() else None
        return owner is not None and (owner.task, owner.run, owner.done) == (task, run, True)

    def undo(self, slot: str, task: str, run: str) -> None:
        """Give a prepared slot back to who had it before. Only what bears this run; repeatable. Raises GitFailed."""
        with self._lock_slot(slot):
            admin = self._git_dir(slot)
            owner = slot_records.find_owner(admin) if admin is not None else None
            if admin is not None and owner is not None and (owner.task, owner.run, owner.done) == (task, run, False):
                slot_records.write_owner(admin, owner.before)

    def detach(self, slot: str, commit: str, run: str) -> None:
        """A reviewer's or planner's slot, empty and at ``commit`` on no branch; made if it is not there.

        What was in it and is nowhere else is saved first. Raises GitFailed.
        """
        whole = self.git.out("rev-parse", "--verify", f"{commit}^{{commit}}")
        with self._lock_slot(slot):
            self._retry_if_stuck(slot, lambda: self._detach(slot, whole, run))

    def clean(self, slot: str, when: str, keep: Sequence[str]) -> None:
        """Remove the ignored files of a slot that ``config.merge_clean`` wants removed, and what is changed in its
        submodules. Raises GitFailed, OSError."""
        with self._lock_slot(slot):
            self._retry_if_stuck(slot, lambda: slot_setup.empty_submodules(self.slot_git(slot)))
            if slot_setup.is_clean_due(self.slot_git(slot), when):
                self._retry_if_stuck(slot, lambda: slot_setup.remove_ignored_files(self.slot_git(slot), keep))

    def detach_once(self, slot: str, commit: str, run: str) -> bool:
        """``detach``, unless it was carried through for this run already: then its agent may be at work there.

        Says whether anything was done. Raises GitFailed.
        """
        with self._lock_slot(slot):
            if self.is_finished(slot, slot, run):
                return False
            self._retry_if_stuck(slot, lambda: self._detach(slot, commit, run))
            return True

    def _detach(self, slot: str, commit: str, run: str) -> None:
        slot_records.refuse_linked_directory(self._slots_directory)
        stuck_slots.clear_slot_path(self.paths.slot(slot))
        self._ensure_slot(slot, commit)
        admin, owner = self._open_slot(slot)
        here = owner or SlotOwner(slot, run, commit)
        self._save_and_wipe(slot, admin, here)
        self._checkout(slot, here, "--detach", commit)
        slot_records.write_owner(admin, SlotOwner(slot, run, commit, done=True))

    def discard(self, slot: str) -> None:
        """Remove a slot of which nothing is kept, or set it aside where it cannot be removed. Repeatable.

        Raises GitFailed, LockTimeout, OSError.
        """
        with lock_path(self.paths.worktree_lock):
            admin, path = self._git_dir(slot), self.paths.slot(slot)
            if admin is None and not path.is_dir():
                return
            stuck_slots.loosen_permissions(path)
            try:
                slot_records.remove_half_made(self.git.with_timeout(600), path, admin or path)
            except OSError:
                if not stuck_slots.is_stuck(path):
                    raise
                stuck_slots.retire_slot(path)
                slot_records.remove_half_made(self.git.with_timeout(600), path, admin or path)

    def release(self, slot: str, task: str, run: str) -> None:
        """After a final status: save what is left, let the branch go, take the link away; the slot is free.

        Nothing happens where the slot belongs to another task or is gone; repeatable. Raises GitFailed.
        """
        slot_records.unlink_task(self.paths, task, slot)
        with self._lock_slot(slot):
            admin = self._git_dir(slot)
            owner = slot_records.find_owner(admin) if admin is not None else None
            if admin is None or owner is None or owner.task != task:
                return
            if self.paths.slot(slot).is_dir():
                self._retry_if_stuck(slot, lambda: self._empty_finished(slot, owner))
                admin = self._open_slot(slot)[0]
            else:
                self._detach_head(admin)
            slot_records.write_owner(admin, None)

    def _empty_finished(self, slot: str, owner: SlotOwner) -> None:
        """Empty a slot whose task is over, and let its branch go."""
        self._save_and_wipe(slot, self._open_slot(slot)[0], owner)
        self._checkout(slot, owner, "--detach", "HEAD")

    def retired_slots(self) -> tuple[Path, ...]:
        """The slots that could not be emptied, and were replaced. Raises OSError."""
        return stuck_slots.list_retired(self._slots_directory)

    def _retry_if_stuck(self, slot: str, work: Callable[[], T]) -> T:
        """Carry out ``work``, which empties a slot. Where permissions are in its way they are loosened; where that is
        not enough the slot is set aside, with all that is in it, and another one is made in its place.

        Raises what ``work`` raises for any other reason.
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
        """Set a slot aside and make another one, at the same commit and with the same owner. Raises GitFailed."""
        _, owner = self._open_slot(slot)
        git = self.slot_git(slot)
        head = git.out("rev-parse", "--verify", "HEAD^{commit}")
        if owner is not None:
            salvage_head(git, owner.task, owner.run, self._protecting_refs(slot, owner))
        stuck_slots.retire_slot(self.paths.slot(slot))
        self.add(slot, head)
        slot_records.write_owner(self._open_slot(slot)[0], owner)

    def head_commit(self, slot: str) -> str:
        """The commit the slot stands at. Raises GitFailed."""
        return self.slot_git(slot).out("rev-parse", "--verify", "HEAD^{commit}")

    def branch_tip(self, task: str) -> str | None:
        """The newest commit on a task's branch; None while it has none. Raises GitFailed."""
        found = find_branches(self.git, branch_of(task)).get(branch_of(task))
        return None if found is None else found.commit

    def list_changes(self, slot: str) -> tuple[str, ...]:
        """Names of changed and untracked files in the slot; a brief's block is no change. Raises GitFailed."""
        git = self.slot_git(slot)
        return tuple(name for name in list_changed_files(git) if not reset.is_only_brief(git, name))

    def slot_names(self) -> tuple[str, ...]:
        """The slots that are there, finished or not, in the order of their names."""
        place = self._slots_directory
        found = (path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else ()
        return tuple(sorted(name for name in found if self._git_dir(name) is not None))

    def recorded_slots(self) -> tuple[str, ...]:
        """The slots that git knows of, also those whose directory is gone."""
        return tuple(sorted(slot_records.git_dirs_below(self._slots_directory, self._common_dir)))

    def repair(self, slot: str, commit: str) -> bool:
        """Have git know a slot again, at ``commit``, and an owner file be readable; whether either was not so."""
        path = self.paths.slot(slot)
        if self._git_dir(slot) is None and path.is_dir() and any(path.iterdir()):
            self.add(slot, commit)
            return True
        with self._lock_slot(slot):
            admin = self._git_dir(slot)
            if admin is None:
                return False
            try:
                slot_records.read_owner(admin)
            except GitFailed:
                slot_records.write_owner(admin, slot_records.find_owner(admin))
                return True
        return False

    def owner(self, slot: str) -> tuple[str, str] | None:
        """Task and run that the slot bears; for a reviewer's or planner's slot the task is the slot's own name."""
        admin = self._git_dir(slot)
        found = slot_records.read_owner(admin) if admin is not None else None
        return None if found is None else (found.task, found.run)

    def assign_run(self, slot: str, task: str, run: str) -> None:
        """A further session on the same claim: the slot bears its run now, and nothing in it changes.

        Raises NotYours where it is another task's or its claim was not finished, GitFailed.
        """
        if not self.exists(slot):
            raise NotOwner(f"the slot {slot} is gone, or git's records of it", "liza doctor --fix")
        admin, owner = self._open_slot(slot)
        if owner is None or owner.task != task or not owner.done:
            raise NotOwner(f"the slot {slot} is not laid out for {task}", "liza doctor --fix")
        slot_records.write_owner(admin, replace(owner, run=run))

    def exists(self, slot: str) -> bool:
        """Whether the slot is there, and git knows it."""
        return self._git_dir(slot) is not None and self.paths.slot(slot).is_dir()

    def remove_all(self) -> tuple[str, ...]:
        """Save and remove every slot, and the links to them; the refs of what was saved. Raises GitFailed.

        What a task's branch has is saved already: branches stay, or whoever takes one away looks at what it holds.

        What cannot be saved is not removed.
        """
        saved: list[str] = []
        for slot, admin in slot_records.git_dirs_below(self._slots_directory, self._common_dir).items():
            path = self.paths.slot(slot)
            if slot == PROOF_SLOT:
                self.discard(slot)
                continue
            if path.is_dir() and not slot_records.is_half_made(admin):
                admin, owner = self._open_slot(slot)
                branch = () if owner is None else (f"refs/heads/{branch_of(owner.task)}",)
                ref = self._save(slot, owner, slot, None, branch)
                saved += [ref] if ref else []
            with lock_path(self.paths.worktree_lock):
                if slot_records.is_half_made(admin):
                    slot_records.remove_half_made(self.git, path, admin)
                else:
                    self.git.out("worktree", "remove", "--force", "--force", str(path), timeout=600)
        slot_records.remove_links(self.paths)
        slots_directory.remove_directory(self.paths)
        return tuple(saved)

    def slot_git(self, slot: str) -> Git:
        """git in a slot, on the git directory that the repository itself names for it. Raises GitFailed."""
        admin = self._git_dir(slot)
        if admin is None:
            slot_records.refuse_linked_directory(self._slots_directory)
            raise SharedPathBlocked(
                f"{self.paths.slot(slot)} is no work tree of {self.paths.root}", "liza doctor --fix"
            )
        slot_records.repair_commondir(admin)
        return self.git.with_git_dir(self.paths.slot(slot), admin, self._common_dir)

    def _lock_slot(self, slot: str) -> AbstractContextManager[int]:
        """The board frees a slot before it is cleared: the next claim and the clearing take turns, each whole."""
        return lock_path(self.paths.locks / f"slot-{slot}.lock")

    @property
    def _slots_directory(self) -> Path:
        return self.paths.slots

    @cached_property
    def _common_dir(self) -> Path:
        return git_dirs(self.git)[1]

    def _git_dir(self, slot: str) -> Path | None:
        return slot_records.find_git_dir(self.paths.slot(slot), self._common_dir)

    def _ensure_slot(self, slot: str, commit: str) -> None:
        wrong = slots_directory.foreign_error(self.paths, self._common_dir)
        if wrong is not None:
            raise wrong
        admin = self._git_dir(slot)
        if admin is None or slot_records.is_half_made(admin) or not self.paths.slot(slot).is_dir():
            self.add(slot, commit)

    def _open_slot(self, slot: str) -> tuple[Path, SlotOwner | None]:
        """The git directory of a slot that is there, and who is known to have it; its ``.git`` put right."""
        path, admin = self.paths.slot(slot), self._git_dir(slot)
        if admin is None or path.is_symlink() or not path.is_dir():
            raise SharedPathBlocked(f"{path} is no work tree of {self.paths.root}", "liza doctor --fix")
        slot_records.repair_gitfile(path, admin)
        return admin, slot_records.find_owner(admin)

    def _start_commit(self, known: dict[str, Branch], branch: str) -> str:
        """Where work on a branch begins: at its tip, else at integration's."""
        found = known.get(branch) or known.get(self.integration)
        if found is None:
            raise Missing(f"the branch {self.integration} is gone", "liza doctor")
        return found.commit

    def _save(
        self, slot: str, owner: SlotOwner | None, task: str, run: str | None, kept_in: tuple[str, ...] = ()
    ) -> str | None:
        # Nobody knows whose it was: kept under the slot's own name, so that no other task finds it as its own.
        named = (owner.task, owner.run) if owner is not None else (task, run) if run else (slot, "unknown")
        return salvage_if_needed(self.slot_git(slot), *named, kept_in=(*self._protecting_refs(slot, owner), *kept_in))

    def _protecting_refs(self, slot: str, owner: SlotOwner | None) -> tuple[str, ...]:
        """What has to hold HEAD, or it is saved. A slot on no branch stands where it was put: others keep that."""
        put = (owner.commit,) if owner is not None and owner.task == slot and owner.commit else ()
        return (*put, f"refs/heads/{self.integration}")

    def _salvage_to_restore(self, owner: SlotOwner | None, task: str, ref: str | None) -> str | None:
        """The salvage with the unfinished files of ``task``: what was in the slot just now, or was saved earlier."""
        if owner is None or owner.task != task:
            ref = find_unrestored(self.git, task)
        elif owner.salvage is not None and not owner.done:
            # Its finishing was cut short: what lies in the slot is a part of what was saved before that.
            ref = owner.salvage
        return ref if ref is not None and list_uncommitted(self.git, ref) else None

    def _save_and_wipe(self, slot: str, admin: Path, owner: SlotOwner) -> None:
        slot_records.remove_slot_locks(admin)
        self._wipe(slot, admin, self._save(slot, owner, owner.task, owner.run))

    def _empty_prepared(self, slot: str, admin: Path, owner: SlotOwner) -> None:
        """What was written since it was prepared is still the work of who had the slot before."""
        slot_records.remove_slot_locks(admin)
        before = owner.before or owner
        kept = self._protecting_refs(slot, before)
        self._wipe(slot, admin, salvage_new_changes(self.slot_git(slot), before.task, before.run, kept))

    def _wipe(self, slot: str, admin: Path, saved: str | None) -> None:
        git = self.slot_git(slot)
        ended = reset.end_operations(git, admin)
        stripped = reset.strip_briefs(git)
        if saved is not None or ended or stripped:
            reset.discard_changes(git)

    def _checkout(self, slot: str, owner: SlotOwner, *where: str) -> None:
        git = self.slot_git(slot).with_timeout(600)
        done = git.run("switch", "--quiet", "--no-guess", "--no-overwrite-ignore", *where)
        if done.code != 0:
            # An ignored file lies where the other commit has one of its own: saved, then overwritten.
            create_salvage(git, owner.task, owner.run)
            git.out("switch", "--quiet", "--no-guess", "--discard-changes", *where)

    def _refuse_blocked(self, branch: str, known: dict[str, Branch]) -> None:
        """A ref is a file to git, or a directory of refs: not both."""
        for name in sorted(known):
            if name == branch.partition("/")[0] or name.startswith(f"{branch}/"):
                raise ref_conflict_error(name, branch)

    def _refuse_foreign_checkout(self, branch: str, known: dict[str, Branch]) -> None:
        place = known[branch].checkout if branch in known else None
        if place is not None and place.is_dir() and slot_records.find_slot_name(place, self._slots_directory) is None:
            raise Refused(f"{branch} is checked out in {place}: no agent can work on it", f"git -C {place} switch -")

    def _free_branch(self, slot: str, branch: str, known: dict[str, Branch]) -> None:
        """Let another slot go of the branch, where a crash left it; its files stay as they are."""
        place = known[branch].checkout if branch in known else None
        other = None if place is None else slot_records.find_slot_name(place, self._slots_directory)
        if other is not None and other != slot:
            admin = self._git_dir(other)
            assert admin is not None
            self._detach_head(admin)

    def _detach_head(self, admin: Path) -> None:
        """Have a slot stand on no branch, in git's records alone: its files stay as they are, or are gone."""
        slot_records.repair_commondir(admin)
        git = self.git.with_git_dir(self.paths.root, admin, self._common_dir)
        git.out("update-ref", "HEAD", git.out("rev-parse", "--verify", "HEAD^{commit}"))
