"""Find, open, lock and create slots. Nothing here changes the files in a slot.

Every git command gets the git directory of the slot explicitly, so a ``.git`` file that an agent replaced cannot
redirect it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from liza.repo import survey
from liza.repo.config_pins import git_dirs
from liza.repo.hiding import slot_excludes
from liza.repo.merge.merges import find_branches
from liza.repo.runner import Git
from liza.repo.slots import reset, slot_records, slots_directory, stuck_slots
from liza.repo.slots.slot_records import LastUse, SlotOwner
from liza.repo.survey import WorkTreeState
from liza.rules.errors import SharedPathBlocked
from liza.rules.paths import Paths, branch_of
from liza.rules.value_classes import Value, replace
from liza.system.locks import lock_path


class SlotAccess(Value, dict=True):
    """The slots of one crew. ``integration`` is the branch that finished work is merged into."""

    paths: Paths
    git: Git
    integration: str = "integration"

    def add(self, slot: str, commit: str) -> None:
        """Create a slot, detached at ``commit``. An existing slot is not changed.

        Holds the worktree lock. Removes first what a killed process left. Raises GitFailed, LockTimeout.
        """
        path = self.paths.slot(slot)
        with lock_path(self.paths.worktree_lock) as lock_fd:
            slot_records.refuse_links(path)
            git_dir = self._git_dir(slot)
            if git_dir is not None and not slot_records.is_half_made(git_dir):
                if path.is_dir():
                    return
                # The directory is missing, its record is not: `git worktree add` then needs --force twice.
                slot_records.write_owner(git_dir, None)
            elif git_dir is not None:
                slot_records.remove_half_made(self.git, path, git_dir)
            elif path.is_dir() and any(path.iterdir()):
                # git's record is missing, the files are not: keep them, the next user of the slot saves them.
                slot_records.repair_gitfile(path, slot_records.recreate_record(path, self.common_dir, commit))
                self.slot_git(slot).out("read-tree", "HEAD")
                return
            slots_directory.ensure_directory(self.paths)
            # git inherits the lock: if this process dies, no other process removes what git is still writing.
            git = self.git.inheriting(lock_fd).with_timeout(1800)
            git.out("worktree", "add", "--force", "--force", "--quiet", "--detach", str(path), commit)

    def head_commit(self, slot: str) -> str:
        """Return the commit at the slot's HEAD. Raises GitFailed."""
        return self.slot_git(slot).out("rev-parse", "--verify", "HEAD^{commit}")

    def branch_tip(self, task: str) -> str | None:
        """Return the newest commit of a task's branch, or None if there is no branch. Raises GitFailed."""
        branch = find_branches(self.git, branch_of(task)).get(branch_of(task))
        return None if branch is None else branch.commit

    def list_changes(self, slot: str) -> tuple[str, ...]:
        """Return the names of changed and untracked files, as ``read_work_tree`` does. Raises GitFailed."""
        return self.read_work_tree(slot).changed

    def read_work_tree(self, slot: str) -> WorkTreeState:
        """Return the state of a slot at one moment. A brief's block does not count as a change. Raises GitFailed."""
        git = self.slot_git(slot)
        state = survey.read_work_tree(git)
        changed = tuple(name for name in state.changed if not reset.is_only_brief(git, name))
        return replace(state, changed=changed)

    def slot_names(self) -> tuple[str, ...]:
        """Return the names of the existing slots, finished or not, sorted."""
        directory = self._slots_directory
        names = (path.name for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else ()
        return tuple(sorted(name for name in names if self._git_dir(name) is not None))

    def recorded_slots(self) -> tuple[str, ...]:
        """Return the slots that git has a record of, including those whose directory is missing."""
        return tuple(sorted(slot_records.git_dirs_below(self._slots_directory, self.common_dir)))

    def retired_slots(self) -> tuple[Path, ...]:
        """Return the slots that could not be emptied and were replaced. Raises OSError."""
        return stuck_slots.list_retired(self._slots_directory)

    def owner(self, slot: str) -> tuple[str, str] | None:
        """Return the task and run that own the slot. For a reviewer or planner the task is the slot's name."""
        return slot_records.slot_owner(self.paths.slot(slot), self.common_dir)

    def last_use(self, slot: str) -> LastUse | None:
        """Return the run that used a slot last, and since when; None if that is unknown. Raises OSError."""
        git_dir = self._git_dir(slot)
        return None if git_dir is None else slot_records.read_last_use(git_dir)

    def slots_of(self, agent: str) -> tuple[str, ...]:
        """Return the slots whose last run was of this agent, the newest first. Raises OSError."""
        uses = {
            slot: use
            for slot, git_dir in slot_records.git_dirs_below(self._slots_directory, self.common_dir).items()
            if (use := slot_records.read_last_use(git_dir)) is not None and use.agent == agent
        }
        return tuple(sorted(uses, key=lambda slot: uses[slot].since, reverse=True))

    def exists(self, slot: str) -> bool:
        """Return whether the slot's directory and git's record of it both exist."""
        return self._git_dir(slot) is not None and self.paths.slot(slot).is_dir()

    def slot_git(self, slot: str) -> Git:
        """Return git for a slot, with the git directory that the repository has recorded for it. Raises GitFailed."""
        git_dir = self._git_dir(slot)
        if git_dir is None:
            slot_records.refuse_linked_directory(self._slots_directory)
            raise SharedPathBlocked(
                f"{self.paths.slot(slot)} is not a worktree of {self.paths.root}", "liza doctor --fix"
            )
        slot_records.repair_commondir(git_dir)
        git = self.git.with_git_dir(self.paths.slot(slot), git_dir, self.common_dir)
        return git.with_config(*slot_excludes.slot_config(git_dir))

    def lock_slot(self, slot: str) -> AbstractContextManager[int]:
        """Lock a slot. The board frees a slot before it is cleared, so the next claim and the clearing must not
        overlap.
        """
        return lock_path(self.paths.locks / f"slot-{slot}.lock")

    @property
    def _slots_directory(self) -> Path:
        return self.paths.slots

    @cached_property
    def common_dir(self) -> Path:
        return git_dirs(self.git)[1]

    def _git_dir(self, slot: str) -> Path | None:
        return slot_records.find_git_dir(self.paths.slot(slot), self.common_dir)

    def _ensure_slot(self, slot: str, commit: str) -> None:
        """Create a slot if it is missing or half-made. Raise Refused if the slots directory is not Liza's."""
        error = slots_directory.foreign_error(self.paths, self.common_dir)
        if error is not None:
            raise error
        git_dir, path = self._git_dir(slot), self.paths.slot(slot)
        if path.exists() and not path.is_symlink() and not path.is_dir():
            stuck_slots.clear_slot_path(path)
        if git_dir is None or slot_records.is_half_made(git_dir) or not path.is_dir():
            self.add(slot, commit)

    def _open_slot(self, slot: str) -> tuple[Path, SlotOwner | None]:
        """Repair the ``.git`` file of an existing slot. Return its git directory and its owner."""
        path, git_dir = self.paths.slot(slot), self._git_dir(slot)
        if git_dir is None or path.is_symlink() or not path.is_dir():
            raise SharedPathBlocked(f"{path} is not a worktree of {self.paths.root}", "liza doctor --fix")
        slot_records.repair_gitfile(path, git_dir)
        return git_dir, slot_records.find_owner(git_dir)

    def _detach_head(self, git_dir: Path) -> None:
        """Detach HEAD of a slot in git's records only. Its files are not changed and may be missing."""
        slot_records.repair_commondir(git_dir)
        git = self.git.with_git_dir(self.paths.root, git_dir, self.common_dir)
        git.out("update-ref", "HEAD", git.out("rev-parse", "--verify", "HEAD^{commit}"))
