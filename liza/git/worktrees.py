"""Pool of slots: worktrees that are created once, never moved, and reused from task to task.

A claim first prepares a slot: it saves the content and changes nothing. After the board has confirmed the claim, the
slot is finished: emptied and switched to the task's branch. ``finish`` is idempotent and can be repeated until it
completes. `worktree_creation.py` creates, finds and opens slots, `slot_emptying.py` saves and empties them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from liza.box import slot_directories
from liza.git import git_refs, leftovers, run_git, slot_records, slot_setup, slots_directory
from liza.git.branch_moves import Branch, find_branches
from liza.git.reset import salvage_submodules
from liza.git.salvage import find_last_salvage, find_unrestored, list_uncommitted, mark_restored, restore_salvage
from liza.git.slot_emptying import SlotEmptying
from liza.git.slot_records import SlotOwner
from liza.model.configuration import Config
from liza.model.errors import GitFailed, LizaError, Missing, NotOwner, NotRegularFile, Refused, SharedPathBlocked
from liza.model.paths import TASK_LINKS, Paths, branch_of
from liza.model.value_classes import Value, replace
from liza.system.locks import lock_path

PROOF_SLOT = "proof"
"""Name of the slot for test proofs. Its content is never saved: sources in it are broken on purpose."""


class PreparedSlot(Value):
    """Result of ``prepare``: the branch, the start commit, and whether ``finish`` will restore unfinished files."""

    branch: str
    base: str
    restores_files: bool


class Worktrees(SlotEmptying):
    """The slots of one crew, and what a claim, a review, a merge and the end of a task do with them."""

    def prepare(self, slot: str, task: str, run: str, salvage_as: str | None = None) -> PreparedSlot:
        """Prepare a slot for a claim (phase two): save its content and record the new owner.

        Nothing in the slot is changed. A missing slot is created. The salvage is named after the task and run in the
        owner file. Without an owner file it is named after ``task`` and ``salvage_as`` if the task's link shows that
        the task had this slot, else after the slot and ``unknown``. Idempotent for the same run.

        Raises GitFailed if something cannot be saved, Refused if a person has the task's branch checked out.
        """
        branch = branch_of(task)
        # `for-each-ref task` would also list every branch below `task/`; the pattern matches that one name.
        branches = find_branches(self.git, branch, self.integration, "tas[k]")
        self._refuse_blocked(branch, branches)
        self._refuse_foreign_checkout(branch, branches)
        base = self._start_commit(branches, branch)
        with self._lock_existing(slot, base):
            git_dir, owner = self._open_slot(slot)
            if owner is not None and (owner.task, owner.run) == (task, run):
                return PreparedSlot(branch, owner.commit or base, owner.salvage is not None)
            # Save before the owner changes: after a kill the salvage still gets the previous owner's name.
            earlier_run = salvage_as if slot_records.is_linked(self.paths, task, slot) else None
            ref = self._retry_if_stuck(slot, lambda: self._save(slot, owner, task, earlier_run))
            git_dir = self._open_slot(slot)[0]
            files = self._salvage_to_restore(owner, task, ref)
            work_of = slot_records.content_owner(owner)
            before = None if work_of is None else replace(work_of, before=None)
            slot_records.write_owner(git_dir, SlotOwner(task, run, base, files, before=before))
        return PreparedSlot(branch, base, files is not None)

    @contextmanager
    def _lock_existing(self, slot: str, base: str) -> Iterator[None]:
        """Lock a slot that exists: it is created before, at ``base``, and again if it is removed until it is locked.

        It is not created under the lock: that can take minutes, and recovery waits for the lock.
        """
        while True:
            self._ensure_slot(slot, base)
            with self.lock_slot(slot):
                if self.exists(slot):
                    yield
                    return

    def finish(self, slot: str, task: str, run: str) -> None:
        """Finish a slot after its claim is confirmed: empty it, switch to the task's branch, restore unfinished files,
        link it.

        Can be repeated until it completes. After that nothing in the slot is changed, because an agent may be working
        there. Raises NotOwner if the slot belongs to another run, GitFailed.
        """
        git_dir, owner = self._open_slot(slot)
        if owner is None or (owner.task, owner.run) != (task, run):
            raise NotOwner(
                f"slot {slot} belongs to {owner.run if owner else 'no run'}, not to {run}", f"liza task show {task}"
            )
        if not owner.done:
            self._retry_if_stuck(slot, lambda: self._switch_to_task(slot, task))
            git_dir = self._open_slot(slot)[0]
            if owner.salvage is not None:
                restore_salvage(self.slot_git(slot), owner.salvage)
                mark_restored(self.git, task, owner.salvage)
            slot_setup.forget_untracked(self.slot_git(slot))
            slot_records.unlink_others(self.paths, task, slot)
            slot_records.write_last_run(git_dir, run)
            # `done` is written last: a killed `finish` is repeated from its start.
            slot_records.write_owner(git_dir, replace(owner, done=True, before=None))
        slot_records.link_task(self.paths, task, slot)

    def _switch_to_task(self, slot: str, task: str) -> None:
        """Empty a prepared slot and switch it to the branch of the task."""
        git_dir, owner = self._open_slot(slot)
        if owner is None:
            raise NotOwner(f"slot {slot} belongs to no run", f"liza task show {task}")
        branch = branch_of(task)
        branches = find_branches(self.git, branch, self.integration)
        self._free_branch(slot, branch, branches)
        # A task that continues in its slot finds its submodules as it left them.
        is_other_task = owner.before is None or owner.before.task != task
        saved = self._save_submodules(slot, owner.before) if is_other_task else ()
        self._empty_prepared(slot, git_dir, owner)
        # From here on the files are not those of the owner before: a repeated `finish` saves none in that name.
        slot_records.write_owner(git_dir, replace(owner, before=None))
        start = () if branch in branches else ("--no-track", "--create")
        end = () if branch in branches else (owner.commit or self._start_commit(branches, branch),)
        self._checkout(slot, owner, *start, branch, *end)
        if is_other_task:
            self._reset_submodules(slot, saved)

    def is_finished(self, slot: str, task: str, run: str) -> bool:
        """Return whether ``finish`` has completed for this claim. Raises GitFailed."""
        git_dir = self._git_dir(slot)
        owner = slot_records.find_owner(git_dir) if git_dir is not None and self.paths.slot(slot).is_dir() else None
        return owner is not None and (owner.task, owner.run, owner.done) == (task, run, True)

    def undo(self, slot: str, task: str, run: str) -> None:
        """Return a prepared slot to its previous owner, if it belongs to this run. Idempotent. Raises GitFailed."""
        with self.lock_slot(slot):
            git_dir = self._git_dir(slot)
            owner = slot_records.find_owner(git_dir) if git_dir is not None else None
            if git_dir is not None and owner is not None and (owner.task, owner.run, owner.done) == (task, run, False):
                slot_records.write_owner(git_dir, owner.before)

    def detach(self, slot: str, commit: str, run: str) -> None:
        """Empty the slot of a reviewer, planner or merger and detach it at ``commit``. A missing slot is created.

        Content that exists nowhere else is saved first. Raises GitFailed.
        """
        commit_id = self.git.out("rev-parse", "--verify", f"{commit}^{{commit}}")
        with self.lock_slot(slot):
            self._retry_if_stuck(slot, lambda: self._detach(slot, commit_id, run))

    def clean(self, slot: str, config: Config) -> None:
        """Reset the submodules of a merge slot, and remove what tests left there, as ``config.merge_clean`` says.

        Raises GitFailed, OSError.
        """
        root = self.paths.root
        with self.lock_slot(slot):
            self._retry_if_stuck(slot, lambda: slot_setup.empty_submodules(self.slot_git(slot)))
            self._retry_if_stuck(slot, lambda: slot_setup.remove_leftovers(root, self.slot_git(slot), config))

    def detach_once(self, slot: str, commit: str, run: str) -> bool:
        """Detach as ``detach`` does, unless that has completed for this run: its agent may be working there.

        Return whether anything was done. Raises GitFailed.
        """
        with self.lock_slot(slot):
            git_dir = self._git_dir(slot)
            owner = None if git_dir is None else slot_records.find_owner(git_dir)
            # An earlier crew of the repository may have had a run of the same name.
            if owner is not None and owner.commit == commit and self.is_finished(slot, slot, run):
                return False
            self._retry_if_stuck(slot, lambda: self._detach(slot, commit, run))
            return True

    def _detach(self, slot: str, commit: str, run: str) -> None:
        slot_records.refuse_links(self._slots_directory)
        leftovers.clear_slot_path(self.paths.slot(slot))
        self._ensure_slot(slot, commit)
        git_dir, owner = self._open_slot(slot)
        current_owner = owner or SlotOwner(slot, run, commit)
        self._empty_at(slot, git_dir, current_owner, commit)
        slot_setup.forget_untracked(self.slot_git(slot))
        slot_records.write_last_run(git_dir, run)
        slot_records.write_owner(git_dir, SlotOwner(slot, run, commit, done=True))

    def discard(self, slot: str) -> None:
        """Remove a slot without saving it. Idempotent.

        Raises SystemRefused if it has files of another user, GitFailed, LockTimeout, OSError.
        """
        slot_directories.remove_directories(self.paths, slot)
        with lock_path(self.paths.worktree_lock):
            git_dir, path = self._git_dir(slot), self.paths.slot(slot)
            if git_dir is None and not path.is_dir():
                return
            leftovers.loosen_permissions(path)
            with leftovers.explain_stuck(path):
                slot_records.remove_half_made(self.git.with_timeout(600), path, git_dir or path)

    def release(self, slot: str, task: str, run: str) -> None:
        """Release a slot after a final status: save its content, leave the branch, remove the link.

        Does nothing if the slot belongs to another task or is missing. Idempotent. Raises GitFailed.
        """
        slot_records.unlink_task(self.paths, task, slot)
        with self.lock_slot(slot):
            git_dir = self._git_dir(slot)
            owner = slot_records.find_owner(git_dir) if git_dir is not None else None
            if git_dir is None or owner is None or owner.task != task:
                return
            if self.paths.slot(slot).is_dir():
                self._retry_if_stuck(slot, lambda: self._empty_finished(slot, owner))
                git_dir = self._open_slot(slot)[0]
            else:
                self._detach_head(git_dir)
            slot_records.write_owner(git_dir, None)

    def _empty_finished(self, slot: str, owner: SlotOwner) -> None:
        """Empty a slot whose task is closed, and detach it from the task's branch."""
        self._empty_at(slot, self._open_slot(slot)[0], owner, "HEAD")

    def repair(self, slot: str, commit: str) -> bool:
        """Recreate git's record of a slot, at ``commit``, and replace an unreadable owner file. Return whether either
        was necessary.
        """
        path = self.paths.slot(slot)
        if self._git_dir(slot) is None and path.is_dir() and any(path.iterdir()):
            self.add(slot, commit)
            return True
        with self.lock_slot(slot):
            git_dir = self._git_dir(slot)
            if git_dir is None:
                return False
            try:
                slot_records.read_owner(git_dir)
            except GitFailed:
                slot_records.write_owner(git_dir, slot_records.find_owner(git_dir))
                return True
        return False

    def assign_run(self, slot: str, task: str, run: str) -> None:
        """Record a further session of the same claim as owner. Nothing in the slot changes.

        Raises NotOwner if the slot belongs to another task or its claim is not finished, GitFailed.
        """
        if not self.exists(slot):
            raise NotOwner(f"the slot {slot} or git's record of it is missing", "liza doctor --fix")
        git_dir, owner = self._open_slot(slot)
        if owner is None or owner.task != task or not owner.done:
            raise NotOwner(f"the slot {slot} is not prepared for {task}", "liza doctor --fix")
        slot_records.write_owner(git_dir, replace(owner, run=run))

    def remove_all(self) -> tuple[str, ...]:
        """Save and remove every slot and the links to them. Return the refs of the salvages. Raises GitFailed.

        A slot that cannot be saved is not removed. Commits on a task's branch count as saved: the branches stay.
        """
        saved: list[str] = []
        for slot in slot_records.git_dirs_below(self._slots_directory, self.common_dir):
            saved += self._remove_slot(slot)
        slot_records.remove_links(self.paths)
        slot_directories.remove_all(self.paths)
        slots_directory.remove_directory(self.paths)
        return tuple(saved)

    def remove(self, slot: str, refuse_used: Callable[[], None]) -> tuple[str, ...]:
        """Save and remove one slot, which the next claim creates again. Return the refs of the salvages.

        ``refuse_used`` is called under the lock of the slot, which a claim needs to use it, and raises if the slot is
        in use. Raises what it raises, and GitFailed if the content cannot be saved; then nothing is removed.
        """
        with self.lock_slot(slot):
            refuse_used()
            saved = self._remove_slot(slot)
            slot_records.unlink_others(self.paths, "", slot)
            return saved

    def disown_all(self) -> None:
        """Take all slots from the tasks of an earlier crew: tasks and runs of a new crew can have the same names.

        No file changes. The next user of a slot saves its content under the task ``earlier.ID``. Raises GitFailed.
        """
        for slot, git_dir in slot_records.git_dirs_below(self._slots_directory, self.common_dir).items():
            owner = None
            # A slot that git cannot read is no task's: its next user repairs it.
            with suppress(OSError, NotRegularFile):
                owner = None if slot_records.is_half_made(git_dir) else slot_records.find_owner(git_dir)
            if owner is None or owner.task == slot:
                continue
            with self.lock_slot(slot):
                if self.paths.slot(slot).is_dir():
                    # Commits that cannot be imported are saved with the content.
                    with suppress(LizaError, OSError):
                        self.leave_box(slot)
                slot_records.remove_slot_locks(git_dir)
                # The branch may be deleted.
                if self.git.with_git_dir(self.paths.root, git_dir, self.common_dir).find_commit("HEAD") is not None:
                    self._detach_head(git_dir)
                content = slot_records.content_owner(owner) or owner
                # No id of a task has a dot.
                slot_records.write_owner(git_dir, SlotOwner(f"earlier.{content.task}", content.run, done=True))

    def _remove_slot(self, slot: str) -> tuple[str, ...]:
        path, git_dir = self.paths.slot(slot), self._git_dir(slot)
        if slot == PROOF_SLOT:
            self.discard(slot)
            return ()
        if git_dir is None:
            raise SharedPathBlocked(f"{path} is not a worktree of {self.paths.root}", f"liza slots repair {slot}")
        saved: tuple[str | None, ...] = ()
        if path.is_dir() and not slot_records.is_half_made(git_dir):
            git_dir, owner = self._open_slot(slot)
            branch = () if owner is None else (f"refs/heads/{branch_of(owner.task)}",)
            ref = self._save(slot, owner, slot, None, branch)
            name = (slot, "unknown") if owner is None else (owner.task, owner.run)
            saved = (ref, salvage_submodules(self.open_git(slot), *name, self._salvage_target(slot)))
            run_git.leave_run_git(self.slot_git(slot))
        with lock_path(self.paths.worktree_lock):
            if slot_records.is_half_made(git_dir):
                slot_records.remove_half_made(self.git, path, git_dir)
            else:
                self.git.out("worktree", "remove", "--force", "--force", str(path), timeout=600)
        slot_directories.remove_directories(self.paths, slot)
        return tuple(ref for ref in saved if ref is not None)

    def _start_commit(self, branches: dict[str, Branch], branch: str) -> str:
        """Return the commit at which work on a branch starts: its own tip, else ``start`` or that of integration."""
        if self.start is not None and branch not in branches:
            return self.start
        start = branches.get(branch) or branches.get(self.integration)
        if start is None:
            raise Missing(f"the branch {self.integration} is gone", "liza doctor")
        return start.commit

    def _salvage_to_restore(self, owner: SlotOwner | None, task: str, ref: str | None) -> str | None:
        """Return the salvage with the unfinished files of ``task``: the one just made, or an earlier one."""
        if owner is None or owner.task != task:
            ref = find_unrestored(self.git, task)
        elif not owner.done:
            # `finish` was interrupted: the slot holds work of the task only in part, or files of the owner before.
            is_same_task = owner.before is not None and owner.before.task == task
            ref = owner.salvage or (ref if is_same_task else None)
        if ref is None or not list_uncommitted(self.git, ref):
            return None
        last = find_last_salvage(self.git, task)
        return None if last is not None and last.ref == ref and last.unfinished else ref

    def _refuse_blocked(self, branch: str, branches: dict[str, Branch]) -> None:
        """Raise Refused if a branch excludes ``branch``: to git a ref is a file or a directory of refs."""
        name = git_refs.find_excluding(branch, branches)
        if name is not None:
            raise git_refs.ref_conflict_error(name, branch, git_refs.list_branches(self.git))

    def _refuse_foreign_checkout(self, branch: str, branches: dict[str, Branch]) -> None:
        """Raise Refused if a person has the branch checked out."""
        checkout = branches[branch].checkout if branch in branches else None
        if (
            checkout is not None
            and checkout.is_dir()
            and slot_records.find_slot_name(checkout, self._slots_directory) is None
        ):
            raise Refused(
                f"{branch} is checked out in {checkout}: no agent can work on it",
                shlex.join(["git", "-C", str(checkout), "switch", "--detach"]),
            )

    def _free_branch(self, slot: str, branch: str, branches: dict[str, Branch]) -> None:
        """Detach another slot that a crash left on the branch. Its files are not changed."""
        checkout = branches[branch].checkout if branch in branches else None
        other = None if checkout is None else slot_records.find_slot_name(checkout, self._slots_directory)
        if other is not None and other != slot:
            git_dir = self._git_dir(other)
            assert git_dir is not None
            self._detach_head(git_dir)


def list_slot_names(worktrees: Worktrees) -> tuple[str, ...]:
    """Return the names of all slots: those that git has a record of, and other directories beside them."""
    directory = worktrees.paths.slots
    names = {path.name for path in directory.iterdir() if path.is_dir()} if directory.is_dir() else set()
    others = {name for name in names if name.startswith(".") or name == TASK_LINKS}
    return tuple(sorted({*worktrees.recorded_slots(), *names} - others, key=_natural_key))


def find_damage(worktrees: Worktrees, slot: str) -> str | None:
    """Return what is wrong with a slot, in a phrase; None if nothing is. Raises LizaError, OSError."""
    path = worktrees.paths.slot(slot)
    git_dir = slot_records.find_git_dir(path, worktrees.common_dir)
    if path.is_symlink():
        return "a link is in its place"
    if not path.is_dir():
        return "its directory is missing"
    if git_dir is None:
        return "git has no record of it"
    if slot_records.is_half_made(git_dir):
        return "it was never completed"
    try:
        if not slot_records.points_to(path / ".git", git_dir):
            return "its .git file names another repository"
        slot_records.read_owner(git_dir)
    except (GitFailed, OSError) as error:
        return error.message if isinstance(error, LizaError) else str(error)
    return None


def count_unsaved(worktrees: Worktrees, slot: str) -> int:
    """Return the number of changed files in a slot and of its commits that no ref has. Raises GitFailed."""
    git = worktrees.slot_git(slot)
    commits = git.out("rev-list", "--count", "HEAD", "--not", "--exclude=HEAD", "--all")
    return len(worktrees.list_changes(slot)) + int(commits)


def repair_slot(worktrees: Worktrees, slot: str, commit: str) -> str:
    """Repair a slot as far as it is damaged. Return what was done, in a phrase. Idempotent.

    ``commit``: where a slot without a record is put; its files become changes of that commit.

    Raises GitFailed, OSError.
    """
    path = worktrees.paths.slot(slot)
    with worktrees.lock_slot(slot):
        if path.is_symlink():
            path.unlink()
        git_dir = slot_records.find_git_dir(path, worktrees.common_dir)
        if git_dir is not None and (not path.is_dir() or slot_records.is_half_made(git_dir)):
            with lock_path(worktrees.paths.worktree_lock):
                slot_records.remove_half_made(worktrees.git, path, git_dir)
            return "git's record of it was removed; the next claim creates it again"
    if git_dir is None:
        worktrees.repair(slot, commit)
        return "git has a record of it again; its files are changes in it"
    with worktrees.lock_slot(slot):
        slot_records.repair_gitfile(path, git_dir)
    worktrees.repair(slot, commit)
    return "its .git file and its owner are readable again"


def _natural_key(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def measure_bytes(path: Path) -> int:
    """Return the bytes on disk of a directory. A file with several links counts once. Slow for large directories.

    What is removed meanwhile is not counted. Raises OSError.
    """
    blocks: dict[tuple[int, int], int] = {}
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                status = os.lstat(f"{folder}/{name}")
                blocks[status.st_dev, status.st_ino] = status.st_blocks
    return sum(blocks.values()) * 512


def measure_slot(paths: Paths, slot: str) -> int:
    """As ``measure_bytes``, for a slot and what its boxes have for themselves."""
    return measure_bytes(paths.slot(slot)) + measure_bytes(paths.box(slot).directory)
