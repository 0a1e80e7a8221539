"""Create slots with ``git worktree add``, and find and open them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path

from liza.box import support
from liza.box.run_mounts import Surroundings
from liza.box.surroundings import read_surroundings
from liza.git import hiding, leftovers, reset, run_git, run_import, slot_records, slots_directory, survey
from liza.git.boxed_git import SlotBox, list_boxed_filters, make_reader, shown_directories
from liza.git.branch_moves import find_branches
from liza.git.git_config import git_dirs
from liza.git.run_import import RunStore
from liza.git.runner import Git
from liza.git.slot_records import LastUse, SlotOwner
from liza.git.survey import WorkTreeState
from liza.model.errors import GitFailed, LockTimeout, Missing, SharedPathBlocked
from liza.model.paths import Paths, branch_of
from liza.model.value_classes import Value, replace
from liza.system import untrusted_files
from liza.system.locks import lock_path


def _find_no_box() -> Surroundings | None:
    return None


class SlotAccess(Value, dict=True):
    """The slots of one crew. ``integration`` is the branch that finished work is merged into."""

    paths: Paths
    git: Git
    integration: str = "integration"
    find_surroundings: Callable[[], Surroundings | None] = _find_no_box
    """Returns what boxes need; None where git runs without a box."""
    start: str | None = None
    """Commit at which the branch of a task without one starts; None: the tip of ``integration``."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of git in a slot, beside the usual ones."""

    def add(self, slot: str, commit: str) -> None:
        """Create a slot, detached at ``commit``. An existing slot is not changed.

        Holds the worktree lock. Removes first what a killed process left. Raises GitFailed, LockTimeout.
        """
        path = self.paths.slot(slot)
        with lock_path(self.paths.worktree_lock) as lock_fd:
            slot_records.refuse_links(path.parent, path)
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
            around = self.find_surroundings()
            if around is not None:
                shown = shown_directories(self.common_dir)
                git = git.with_config(*list_boxed_filters(around, slot, git, shown))
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
        state = survey.read_work_tree(self.open_git(slot))
        git = self.slot_git(slot)
        changed = tuple(name for name in state.changed if not reset.is_only_brief(git, name))
        return replace(state, changed=changed)

    def slot_names(self) -> tuple[str, ...]:
        """Return the names of the existing slots, finished or not, sorted."""
        return tuple(name for name in self.recorded_slots() if self.paths.slot(name).is_dir())

    def recorded_slots(self) -> tuple[str, ...]:
        """Return the slots that git has a record of, including those whose directory is missing."""
        return tuple(sorted(slot_records.git_dirs_below(self._slots_directory, self.common_dir)))

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
            slot_records.refuse_links(self._slots_directory)
            raise SharedPathBlocked(
                f"{self.paths.slot(slot)} is not a worktree of {self.paths.root}", "liza doctor --fix"
            )
        git = self.git.with_git_dir(self.paths.slot(slot), git_dir, self.common_dir)
        around = self.find_surroundings()
        box = None if around is None else SlotBox(around, slot, git_dir, shown_directories(self.common_dir))
        return git.with_config(*hiding.slot_config(git_dir), *self.settings).with_box(box)

    def run_of_git(self, slot: str) -> str | None:
        """Return the run in whose git directory the newest state of a slot is; None if it is in that of the slot.

        Raises OSError.
        """
        git_dir = self._git_dir(slot)
        return None if git_dir is None else run_git.read_mark(git_dir)

    def open_git(self, slot: str) -> Git:
        """Return git for the present state of a slot, which a boxed session has in a git directory of its own.

        Every command then runs in a box, and what it prints is what the agent wants. Raises GitFailed, Missing.
        """
        git = self.slot_git(slot)
        if self.run_of_git(slot) is None:
            return git
        around, own = self._require_surroundings(slot), self.paths.box(slot).git
        plain = Git(git.directory, git.timeout, own, own, inherited_fds=git.inherited_fds)
        # The git of the session ignores the same names: what the set-up left is no work of the agent.
        hidden = hiding.slot_config(git_dirs(git)[0])
        box = SlotBox(around, slot, own, shown_directories(self.common_dir))
        return plain.with_environment(GIT_OPTIONAL_LOCKS="0").with_config(*hidden).with_box(box)

    def import_run(self, slot: str) -> str | None:
        """Bring the commits of a slot's boxed session to the branch of its task. Return the newest one.

        None if the session has no git directory of its own, or no task. Idempotent. Raises ImportRefused, GitFailed,
        OSError, LockTimeout.
        """
        run, git_dir = self.run_of_git(slot), self._git_dir(slot)
        owner = None if git_dir is None else slot_records.content_owner(slot_records.find_owner(git_dir))
        if run is None or git_dir is None or owner is None or owner.task == slot:
            return None
        branch = branch_of(owner.task)
        with lock_path(self._import_lock(slot)):
            return run_import.import_branch(
                self.git, self._run_store(slot), branch, run, self.integration,
                lambda tip: self._show_commit(slot, branch, tip),
            )  # fmt: skip

    def remove_incoming(self) -> None:
        """Remove what killed imports left. One that runs now is not touched. Raises OSError."""
        for slot in run_import.list_incoming(self.git):
            with suppress(LockTimeout), lock_path(self._import_lock(slot), 0):
                run_import.remove_incoming(self.git, slot)

    def _show_commit(self, slot: str, branch: str, commit: str) -> None:
        """Write the index of a slot for the commit that its branch is about to be at: no file counts as changed that
        the commit has. A failure is harmless."""
        git = self.slot_git(slot).with_box(None)
        head = untrusted_files.read_record(git_dirs(git)[0] / "HEAD").strip()
        if head == f"ref: refs/heads/{branch}".encode():
            with suppress(GitFailed):
                git.out("read-tree", "--reset", commit)

    def _run_store(self, slot: str) -> RunStore:
        reader = make_reader(self._require_surroundings(slot), slot, self.common_dir)
        return RunStore(self.paths.box(slot).git, slot, reader)

    def _require_surroundings(self, slot: str) -> Surroundings:
        around = self.find_surroundings()
        if around is not None:
            return around
        # The crew was confined when the work was done: it is read in a box, whatever the setting is now.
        machine = support.find_support()
        if not machine.works:
            raise Missing(
                f"the work in {self.paths.slot(slot)} was done in a box, and this machine cannot make one now: "
                f"{machine.cause}",
                machine.remedy or "liza doctor",
            )
        return read_surroundings(machine.program, self.paths, os.environ)

    def _import_lock(self, slot: str) -> Path:
        """Lock of a slot's imports: a verb of the session and its supervisor may import at the same time."""
        return self.paths.locks / f"import-{slot}.lock"

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
            leftovers.clear_slot_path(path)
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
        git = self.git.with_git_dir(self.paths.root, git_dir, self.common_dir)
        git.out("update-ref", "HEAD", git.out("rev-parse", "--verify", "HEAD^{commit}"))
