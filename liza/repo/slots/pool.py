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
from liza.repo.merge.merges import Branch, branches
from liza.repo.ref_names import blocked
from liza.repo.runner import Git
from liza.repo.slots import reset, slot_records, slot_setup, slots_directory, stuck_slots
from liza.repo.slots.salvage import keep_head, salvage, salvage_again, save
from liza.repo.slots.slot_records import Owner
from liza.repo.slots.unsalvage import lay_back, newest, note_laid_back, unfinished
from liza.repo.survey import changed
from liza.rules.errors import GitFailed, Missing, NotYours, PlaceBroken, Refused
from liza.rules.paths import Paths, branch_of
from liza.system.flock import locked

THROW_AWAY = "proof"
"""The slot of which nothing is ever kept: in it sources are made to fail on purpose."""
T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """What a claim will work on: the branch, the commit it starts from, whether unfinished files will be laid back."""

    branch: str
    base: str
    laid_back: bool


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
        with locked(self.paths.worktree_lock) as held:
            slot_records.refuse_links(path)
            admin = self._admin(slot)
            if admin is not None and not slot_records.half_made(admin):
                if path.is_dir():
                    return
                # The directory is gone and its records are not: git makes it anew over them only when forced twice.
                slot_records.write_owner(admin, None)
            elif admin is not None:
                slot_records.remove_half_made(self.git, path, admin)
            elif path.is_dir() and any(path.iterdir()):
                # git's records of it are gone and its files are not: who has use for the slot has to save them.
                slot_records.lead_back(path, slot_records.record_anew(path, self._common, commit))
                self.slot_git(slot).out("read-tree", "HEAD")
                return
            slots_directory.have(self.paths)
            # Whoever dies, the lock lasts as long as this git: nobody removes what it is still writing.
            git = self.git.holding(held).within(1800)
            git.out("worktree", "add", "--force", "--force", "--quiet", "--detach", str(path), commit)

    def prepare(self, slot: str, task: str, run: str, salvage_as: str | None = None) -> Prepared:
        """Phase two of a claim: save what lies in the slot, and note whose it will be. Nothing is destroyed.

        The slot is made if it is not there. What is saved bears the task and run of the owner file; where there is
        none, this task and ``salvage_as``, or the slot and ``unknown``. Repeatable by the same run.
        Raises GitFailed when something cannot be saved, Refused when a person has the task's branch checked out.
        """
        branch = branch_of(task)
        # The pattern matches one name only, where the plain name would match all that is below it as well.
        known = branches(self.git, branch, self.integration, "tas[k]")
        self._refuse_blocked(branch, known)
        symbolic_refs.refuse(self.git, f"refs/heads/{branch}")
        self._refuse_foreign_checkout(branch, known)
        base = self._start(known, branch)
        self._have(slot, base)
        with self._alone(slot):
            admin, owner = self._owned(slot)
            if owner is not None and (owner.task, owner.run) == (task, run):
                return Prepared(branch, owner.commit or base, owner.salvage is not None)
            ref = self._unstuck(slot, lambda: self._save(slot, owner, task, salvage_as))
            admin = self._owned(slot)[0]
            files = self._to_lay_back(owner, task, ref)
            before = None if owner is None else replace(owner, before=None)
            slot_records.write_owner(admin, Owner(task, run, base, files, before=before))
        return Prepared(branch, base, files is not None)

    def finish(self, slot: str, task: str, run: str) -> None:
        """After the claim holds: empty the slot, switch to the task's branch, lay unfinished files back, link it.

        Repeatable until carried through; after that nothing is touched, because an agent may be at work.
        Raises NotYours where the slot bears another run, GitFailed.
        """
        admin, owner = self._owned(slot)
        if owner is None or (owner.task, owner.run) != (task, run):
            raise NotYours(
                f"slot {slot} belongs to {owner.run if owner else 'nobody'}, not to {run}", f"liza task show {task}"
            )
        if not owner.done:
            self._unstuck(slot, lambda: self._lay_out(slot, task, owner))
            admin = self._owned(slot)[0]
            if owner.salvage is not None:
                lay_back(self.slot_git(slot), owner.salvage)
                note_laid_back(self.git, task, owner.salvage)
            if owner.before is not None and owner.before.task != task:
                slot_records.unlink(self.paths, owner.before.task, slot)
            slot_records.write_owner(admin, replace(owner, done=True, before=None))
        slot_records.link(self.paths, task, slot)

    def _lay_out(self, slot: str, task: str, owner: Owner) -> None:
        """Empty a prepared slot, and switch it to the branch of the task."""
        branch = branch_of(task)
        known = branches(self.git, branch, self.integration)
        symbolic_refs.refuse(self.git, f"refs/heads/{branch}")
        self._free_branch(slot, branch, known)
        self._empty_prepared(slot, self._owned(slot)[0], owner)
        start = () if branch in known else ("--no-track", "--create")
        end = () if branch in known else (owner.commit or self._start(known, branch),)
        self._checkout(slot, owner, *start, branch, *end)

    def finished(self, slot: str, task: str, run: str) -> bool:
        """Whether ``finish`` was carried through for this claim. Raises GitFailed."""
        admin = self._admin(slot)
        owner = slot_records.known_owner(admin) if admin is not None and self.paths.slot(slot).is_dir() else None
        return owner is not None and (owner.task, owner.run, owner.done) == (task, run, True)

    def undo(self, slot: str, task: str, run: str) -> None:
        """Give a prepared slot back to who had it before. Only what bears this run; repeatable. Raises GitFailed."""
        with self._alone(slot):
            admin = self._admin(slot)
            owner = slot_records.known_owner(admin) if admin is not None else None
            if admin is not None and owner is not None and (owner.task, owner.run, owner.done) == (task, run, False):
                slot_records.write_owner(admin, owner.before)

    def detach(self, slot: str, commit: str, run: str) -> None:
        """A reviewer's or planner's slot, empty and at ``commit`` on no branch; made if it is not there.

        What was in it and is nowhere else is saved first. Raises GitFailed.
        """
        whole = self.git.out("rev-parse", "--verify", f"{commit}^{{commit}}")
        with self._alone(slot):
            self._unstuck(slot, lambda: self._detach(slot, whole, run))

    def clean(self, slot: str, when: str, keep: Sequence[str]) -> None:
        """Remove the ignored files of a slot that ``config.merge_clean`` wants removed, and what is changed in its
        submodules. Raises GitFailed, OSError."""
        with self._alone(slot):
            self._unstuck(slot, lambda: slot_setup.empty_submodules(self.slot_git(slot)))
            if slot_setup.clean_due(self.slot_git(slot), when):
                self._unstuck(slot, lambda: slot_setup.clean(self.slot_git(slot), keep))

    def detach_once(self, slot: str, commit: str, run: str) -> bool:
        """``detach``, unless it was carried through for this run already: then its agent may be at work there.

        Says whether anything was done. Raises GitFailed.
        """
        with self._alone(slot):
            if self.finished(slot, slot, run):
                return False
            self._unstuck(slot, lambda: self._detach(slot, commit, run))
            return True

    def _detach(self, slot: str, commit: str, run: str) -> None:
        slot_records.refuse_linked_place(self._place)
        stuck_slots.clear_place(self.paths.slot(slot))
        self._have(slot, commit)
        admin, owner = self._owned(slot)
        here = owner or Owner(slot, run, commit)
        self._empty(slot, admin, here)
        self._checkout(slot, here, "--detach", commit)
        slot_records.write_owner(admin, Owner(slot, run, commit, done=True))

    def discard(self, slot: str) -> None:
        """Remove a slot of which nothing is kept, or set it aside where it cannot be removed. Repeatable.

        Raises GitFailed, LockTimeout, OSError.
        """
        with locked(self.paths.worktree_lock):
            admin, path = self._admin(slot), self.paths.slot(slot)
            if admin is None and not path.is_dir():
                return
            stuck_slots.loosen(path)
            try:
                slot_records.remove_half_made(self.git.within(600), path, admin or path)
            except OSError:
                if not stuck_slots.is_stuck(path):
                    raise
                stuck_slots.set_aside(path)
                slot_records.remove_half_made(self.git.within(600), path, admin or path)

    def clear(self, slot: str, task: str, run: str) -> None:
        """After a final status: save what is left, let the branch go, take the link away; the slot is free.

        Nothing happens where the slot belongs to another task or is gone; repeatable. Raises GitFailed.
        """
        slot_records.unlink(self.paths, task, slot)
        with self._alone(slot):
            admin = self._admin(slot)
            owner = slot_records.known_owner(admin) if admin is not None else None
            if admin is None or owner is None or owner.task != task:
                return
            if self.paths.slot(slot).is_dir():
                self._unstuck(slot, lambda: self._leave(slot, owner))
                admin = self._owned(slot)[0]
            else:
                self._let_branch_go(admin)
            slot_records.write_owner(admin, None)

    def _leave(self, slot: str, owner: Owner) -> None:
        """Empty a slot whose task is over, and let its branch go."""
        self._empty(slot, self._owned(slot)[0], owner)
        self._checkout(slot, owner, "--detach", "HEAD")

    def set_aside(self) -> tuple[Path, ...]:
        """The slots that could not be emptied, and were replaced. Raises OSError."""
        return stuck_slots.kept(self._place)

    def _unstuck(self, slot: str, work: Callable[[], T]) -> T:
        """Carry out ``work``, which empties a slot. Where permissions are in its way they are loosened; where that is
        not enough the slot is set aside, with all that is in it, and another one is made in its place.

        Raises what ``work`` raises for any other reason.
        """
        path = self.paths.slot(slot)
        try:
            return work()
        except (GitFailed, OSError):
            if not path.is_dir() or path.is_symlink() or not (stuck_slots.loosen(path) or stuck_slots.is_stuck(path)):
                raise
        try:
            return work()
        except (GitFailed, OSError):
            if not stuck_slots.is_stuck(path):
                raise
        self._replace(slot)
        return work()

    def _replace(self, slot: str) -> None:
        """Set a slot aside and make another one, at the same commit and with the same owner. Raises GitFailed."""
        _, owner = self._owned(slot)
        git = self.slot_git(slot)
        head = git.out("rev-parse", "--verify", "HEAD^{commit}")
        if owner is not None:
            keep_head(git, owner.task, owner.run, self._kept_in(slot, owner))
        stuck_slots.set_aside(self.paths.slot(slot))
        self.add(slot, head)
        slot_records.write_owner(self._owned(slot)[0], owner)

    def head(self, slot: str) -> str:
        """The commit the slot stands at. Raises GitFailed."""
        return self.slot_git(slot).out("rev-parse", "--verify", "HEAD^{commit}")

    def tip(self, task: str) -> str | None:
        """The newest commit on a task's branch; None while it has none. Raises GitFailed."""
        found = branches(self.git, branch_of(task)).get(branch_of(task))
        return None if found is None else found.commit

    def dirty(self, slot: str) -> tuple[str, ...]:
        """Names of changed and untracked files in the slot; a brief's block is no change. Raises GitFailed."""
        git = self.slot_git(slot)
        return tuple(name for name in changed(git) if not reset.is_only_brief(git, name))

    def names(self) -> tuple[str, ...]:
        """The slots that are there, finished or not, in the order of their names."""
        place = self._place
        found = (path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else ()
        return tuple(sorted(name for name in found if self._admin(name) is not None))

    def recorded(self) -> tuple[str, ...]:
        """The slots that git knows of, also those whose directory is gone."""
        return tuple(sorted(slot_records.below(self._place, self._common)))

    def mend(self, slot: str, commit: str) -> bool:
        """Have git know a slot again, at ``commit``, and an owner file be readable; whether either was not so."""
        path = self.paths.slot(slot)
        if self._admin(slot) is None and path.is_dir() and any(path.iterdir()):
            self.add(slot, commit)
            return True
        with self._alone(slot):
            admin = self._admin(slot)
            if admin is None:
                return False
            try:
                slot_records.read_owner(admin)
            except GitFailed:
                slot_records.write_owner(admin, slot_records.known_owner(admin))
                return True
        return False

    def owner(self, slot: str) -> tuple[str, str] | None:
        """Task and run that the slot bears; for a reviewer's or planner's slot the task is the slot's own name."""
        admin = self._admin(slot)
        found = slot_records.read_owner(admin) if admin is not None else None
        return None if found is None else (found.task, found.run)

    def own(self, slot: str, task: str, run: str) -> None:
        """A further session on the same claim: the slot bears its run now, and nothing in it changes.

        Raises NotYours where it is another task's or its claim was not finished, GitFailed.
        """
        if not self.stands(slot):
            raise NotYours(f"the slot {slot} is gone, or git's records of it", "liza doctor --fix")
        admin, owner = self._owned(slot)
        if owner is None or owner.task != task or not owner.done:
            raise NotYours(f"the slot {slot} is not laid out for {task}", "liza doctor --fix")
        slot_records.write_owner(admin, replace(owner, run=run))

    def stands(self, slot: str) -> bool:
        """Whether the slot is there, and git knows it."""
        return self._admin(slot) is not None and self.paths.slot(slot).is_dir()

    def remove_all(self) -> tuple[str, ...]:
        """Save and remove every slot, and the links to them; the refs of what was saved. Raises GitFailed.

        What a task's branch has is saved already: branches stay, or whoever takes one away looks at what it holds.

        What cannot be saved is not removed.
        """
        saved: list[str] = []
        for slot, admin in slot_records.below(self._place, self._common).items():
            path = self.paths.slot(slot)
            if slot == THROW_AWAY:
                self.discard(slot)
                continue
            if path.is_dir() and not slot_records.half_made(admin):
                admin, owner = self._owned(slot)
                branch = () if owner is None else (f"refs/heads/{branch_of(owner.task)}",)
                ref = self._save(slot, owner, slot, None, branch)
                saved += [ref] if ref else []
            with locked(self.paths.worktree_lock):
                if slot_records.half_made(admin):
                    slot_records.remove_half_made(self.git, path, admin)
                else:
                    self.git.out("worktree", "remove", "--force", "--force", str(path), timeout=600)
        slot_records.leave(self.paths)
        slots_directory.remove(self.paths)
        return tuple(saved)

    def slot_git(self, slot: str) -> Git:
        """git in a slot, on the git directory that the repository itself names for it. Raises GitFailed."""
        admin = self._admin(slot)
        if admin is None:
            slot_records.refuse_linked_place(self._place)
            raise PlaceBroken(f"{self.paths.slot(slot)} is no work tree of {self.paths.root}", "liza doctor --fix")
        slot_records.lead_home(admin)
        return self.git.inside(self.paths.slot(slot), admin, self._common)

    def _alone(self, slot: str) -> AbstractContextManager[int]:
        """The board frees a slot before it is cleared: the next claim and the clearing take turns, each whole."""
        return locked(self.paths.locks / f"slot-{slot}.lock")

    @property
    def _place(self) -> Path:
        return self.paths.slots

    @cached_property
    def _common(self) -> Path:
        return git_dirs(self.git)[1]

    def _admin(self, slot: str) -> Path | None:
        return slot_records.admin_of(self.paths.slot(slot), self._common)

    def _have(self, slot: str, commit: str) -> None:
        wrong = slots_directory.not_ours(self.paths, self._common)
        if wrong is not None:
            raise wrong
        admin = self._admin(slot)
        if admin is None or slot_records.half_made(admin) or not self.paths.slot(slot).is_dir():
            self.add(slot, commit)

    def _owned(self, slot: str) -> tuple[Path, Owner | None]:
        """The git directory of a slot that is there, and who is known to have it; its ``.git`` put right."""
        path, admin = self.paths.slot(slot), self._admin(slot)
        if admin is None or path.is_symlink() or not path.is_dir():
            raise PlaceBroken(f"{path} is no work tree of {self.paths.root}", "liza doctor --fix")
        slot_records.lead_back(path, admin)
        return admin, slot_records.known_owner(admin)

    def _start(self, known: dict[str, Branch], branch: str) -> str:
        """Where work on a branch begins: at its tip, else at integration's."""
        found = known.get(branch) or known.get(self.integration)
        if found is None:
            raise Missing(f"the branch {self.integration} is gone", "liza doctor")
        return found.commit

    def _save(
        self, slot: str, owner: Owner | None, task: str, run: str | None, kept_in: tuple[str, ...] = ()
    ) -> str | None:
        # Nobody knows whose it was: kept under the slot's own name, so that no other task finds it as its own.
        named = (owner.task, owner.run) if owner is not None else (task, run) if run else (slot, "unknown")
        return salvage(self.slot_git(slot), *named, kept_in=(*self._kept_in(slot, owner), *kept_in))

    def _kept_in(self, slot: str, owner: Owner | None) -> tuple[str, ...]:
        """What has to hold HEAD, or it is saved. A slot on no branch stands where it was put: others keep that."""
        put = (owner.commit,) if owner is not None and owner.task == slot and owner.commit else ()
        return (*put, f"refs/heads/{self.integration}")

    def _to_lay_back(self, owner: Owner | None, task: str, ref: str | None) -> str | None:
        """The salvage with the unfinished files of ``task``: what was in the slot just now, or was saved earlier."""
        if owner is None or owner.task != task:
            ref = newest(self.git, task)
        elif owner.salvage is not None and not owner.done:
            # Its finishing was cut short: what lies in the slot is a part of what was saved before that.
            ref = owner.salvage
        return ref if ref is not None and unfinished(self.git, ref) else None

    def _empty(self, slot: str, admin: Path, owner: Owner) -> None:
        slot_records.release_locks(admin)
        self._wipe(slot, admin, self._save(slot, owner, owner.task, owner.run))

    def _empty_prepared(self, slot: str, admin: Path, owner: Owner) -> None:
        """What was written since it was prepared is still the work of who had the slot before."""
        slot_records.release_locks(admin)
        before = owner.before or owner
        kept = self._kept_in(slot, before)
        self._wipe(slot, admin, salvage_again(self.slot_git(slot), before.task, before.run, kept))

    def _wipe(self, slot: str, admin: Path, saved: str | None) -> None:
        git = self.slot_git(slot)
        ended = reset.end_operations(git, admin)
        stripped = reset.strip_briefs(git)
        if saved is not None or ended or stripped:
            reset.wipe(git)

    def _checkout(self, slot: str, owner: Owner, *where: str) -> None:
        git = self.slot_git(slot).within(600)
        done = git.run("switch", "--quiet", "--no-guess", "--no-overwrite-ignore", *where)
        if done.code != 0:
            # An ignored file lies where the other commit has one of its own: saved, then overwritten.
            save(git, owner.task, owner.run)
            git.out("switch", "--quiet", "--no-guess", "--discard-changes", *where)

    def _refuse_blocked(self, branch: str, known: dict[str, Branch]) -> None:
        """A ref is a file to git, or a directory of refs: not both."""
        for name in sorted(known):
            if name == branch.partition("/")[0] or name.startswith(f"{branch}/"):
                raise blocked(name, branch)

    def _refuse_foreign_checkout(self, branch: str, known: dict[str, Branch]) -> None:
        place = known[branch].checkout if branch in known else None
        if place is not None and place.is_dir() and slot_records.name_at(place, self._place) is None:
            raise Refused(f"{branch} is checked out in {place}: no agent can work on it", f"git -C {place} switch -")

    def _free_branch(self, slot: str, branch: str, known: dict[str, Branch]) -> None:
        """Let another slot go of the branch, where a crash left it; its files stay as they are."""
        place = known[branch].checkout if branch in known else None
        other = None if place is None else slot_records.name_at(place, self._place)
        if other is not None and other != slot:
            admin = self._admin(other)
            assert admin is not None
            self._let_branch_go(admin)

    def _let_branch_go(self, admin: Path) -> None:
        """Have a slot stand on no branch, in git's records alone: its files stay as they are, or are gone."""
        slot_records.lead_home(admin)
        git = self.git.inside(self.paths.root, admin, self._common)
        git.out("update-ref", "HEAD", git.out("rev-parse", "--verify", "HEAD^{commit}"))
