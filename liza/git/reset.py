"""Empty a worktree and its submodules, and strip briefs from it. The caller has saved its content first.

git gets the repository and the worktree of a submodule explicitly.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from liza.git import hiding, slot_records
from liza.git.git_config import git_dirs, read_gitfile
from liza.git.runner import COMMIT, Git
from liza.git.salvage import SUBMODULES_SUFFIX, SalvageTarget, bundle_repository, clear_hiding_flags, save_bundles
from liza.git.survey import find_operation, read_work_tree
from liza.model.paths import BOXES, BoxPaths
from liza.system import atomic

MAX_BRIEF_FILE = 1 << 23
"""Maximum size of an instructions file, in bytes. A larger file is not read."""


def end_operations(git: Git, git_dir: Path) -> bool:
    """End a merge, rebase, am, cherry-pick, revert or bisect in progress. Return whether there was one.

    A merge, cherry-pick or revert ends only with the ``discard_changes`` that has to follow. Raises GitFailed.
    """
    operation = find_operation(git_dir)
    if (git_dir / "rebase-apply" / "applying").exists():
        git.out("am", "--quit")
    elif (git_dir / "rebase-merge").exists() or (git_dir / "rebase-apply").exists():
        git.out("rebase", "--quit")
    if (git_dir / "sequencer").exists():
        # `reset --hard` leaves a list of more than one commit, and git then switches to no branch.
        git.out("cherry-pick", "--quit")
    for path in git_dir.glob("BISECT_*"):
        path.unlink(missing_ok=True)
    return operation is not None


def strip_briefs(git: Git) -> bool:
    """Remove brief blocks from instructions files. Return whether there was one. Raises GitFailed, OSError."""
    stripped = [name for name in hiding.list_bound_files(git) if _strip_brief(git, name)]
    return bool(stripped)


def discard_changes(git: Git) -> None:
    """Reset to HEAD and remove untracked files. Ignored files stay: a reused slot is faster because of them.

    Raises GitFailed.
    """
    git.out("reset", "--hard", "--quiet")
    git.out("clean", "-ffd", "--quiet")


def is_only_brief(git: Git, name: str) -> bool:
    """Return whether a changed or untracked file differs only by a brief's block. Raises GitFailed."""
    path = git.directory / name
    if name.endswith("/") or path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BRIEF_FILE:
        return False
    text = path.read_bytes()
    stripped = hiding.remove_blocks(git, text)
    if stripped == text:
        return False
    rows = git.names("--literal-pathspecs", "ls-files", "-s", "-z", "--", name)
    if not rows:
        return not stripped.strip()
    stored = git.out("hash-object", f"--path={name}", "--stdin", stdin=stripped)
    committed = git.run("rev-parse", "-q", "--verify", f"HEAD:{name}", codes=(0, 1)).stdout.decode().strip()
    return len(rows) == 1 and rows[0].split(" ")[1] == stored == committed


def _strip_brief(git: Git, name: str) -> bool:
    """Remove the block of a dead run from a file: the clean filter hides it, so git would not reset it.

    Return whether there was one.
    """
    path = git.directory / name
    is_inside = path.resolve().is_relative_to(git.directory.resolve())
    if path.is_symlink() or not path.is_file() or not is_inside or path.stat().st_size > MAX_BRIEF_FILE:
        return False
    text = path.read_bytes()
    stripped = hiding.remove_blocks(git, text)
    if stripped == text:
        return False
    if not stripped and not hiding.is_tracked(git, name):
        path.unlink()
        return True
    atomic.write(path, stripped, path.stat().st_mode & 0o777, sync=False)
    return True


_SUBMODULE_MODE = "160000"


def list_roots(git: Git) -> tuple[Path, ...]:
    """Return the directories in which the repositories of a slot's submodules can be: of the slot, and of its boxes."""
    slot = git.directory
    box = BoxPaths(slot.parent / BOXES / slot.name).git
    return tuple(dict.fromkeys((directory.resolve() / "modules") for directory in (git_dirs(git)[0], box)))


def may_have_submodules(git: Git) -> bool:
    """Return whether the slot may have submodules; without a git command, because most projects have none."""
    return any(root.is_dir() for root in list_roots(git)) or (git.directory / ".gitmodules").exists()


def empty_submodules(git: Git, options: Sequence[str] = ("-ffd",), *, remove_foreign: bool = True) -> bool:
    """Reset every submodule, nested ones included, to the commit in the index and remove changed and untracked files.

    ``options`` are those of git-clean. ``remove_foreign``: remove a directory at the path of a submodule that does
    not belong to this slot; else it stays, because it has not been saved. Return False if the set-up must fetch a
    submodule again: its commit is missing, or its directory was removed. Raises GitFailed, OSError.
    """
    roots = list_roots(git)
    return _empty_below(git.with_timeout(600), roots, options, remove_foreign)


def _empty_below(git: Git, roots: tuple[Path, ...], options: Sequence[str], remove_foreign: bool) -> bool:
    complete = True
    for name, commit in list_submodules(git):
        inner = open_submodule(git, roots, name)
        if inner is not None:
            complete = _empty_submodule(inner, roots, commit, options, remove_foreign) and complete
        elif remove_foreign and _has_content(git.directory / name):
            _remove(git.directory, git.directory / name)
            complete = False
    return complete


def list_fetched(git: Git) -> tuple[str, ...]:
    """Return the paths of the submodules in the index that have a repository of this slot. Raises GitFailed."""
    roots = list_roots(git)
    return tuple(name for name, _ in list_submodules(git) if open_submodule(git, roots, name) is not None)


def open_submodules(git: Git) -> tuple[tuple[str, Git], ...]:
    """Return the fetched submodules, nested ones included, each with its path in the slot. Raises GitFailed."""
    roots = list_roots(git)
    return tuple(_open_below(git, roots, ""))


def _open_below(git: Git, roots: tuple[Path, ...], prefix: str) -> Iterator[tuple[str, Git]]:
    for name, _ in list_submodules(git):
        inner = open_submodule(git, roots, name)
        if inner is not None:
            yield prefix + name, inner
            yield from _open_below(inner, roots, f"{prefix}{name}/")


def list_submodules(git: Git) -> tuple[tuple[str, str], ...]:
    """Return the paths of the submodules in the index, fetched or not, each with its commit. Raises GitFailed."""
    rows = (row.partition("\t") for row in git.names("ls-files", "-s", "-z"))
    entries = ((name, *facts.split(" ")[:2]) for facts, _, name in rows)
    return tuple(
        (name, commit) for name, mode, commit in entries if mode == _SUBMODULE_MODE and COMMIT.fullmatch(commit)
    )


def open_submodule(git: Git, roots: tuple[Path, ...], name: str) -> Git | None:
    """Return git for the submodule at a path, or None if the slot has no repository for it or a link leads there.

    ``roots``: as ``list_roots`` returns them.
    """
    path = git.directory / name
    repository = _find_repository(path, roots)
    if repository is None or path.resolve() != git.directory.resolve() / name:
        return None
    return git.with_git_dir(path, repository, repository)


def _has_content(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir())))


def _empty_submodule(
    inner: Git, roots: tuple[Path, ...], commit: str, options: Sequence[str], remove_foreign: bool
) -> bool:
    repository = git_dirs(inner)[0]
    slot_records.remove_slot_locks(repository)
    clear_hiding_flags(inner)
    end_operations(inner, repository)
    has_commit = inner.run("cat-file", "-e", f"{commit}^{{commit}}", codes=(0, 1, 128)).code == 0
    if has_commit:
        inner.out("checkout", "--quiet", "--force", "--detach", commit)
    inner.out("reset", "--hard", "--quiet")
    inner.out("clean", *options, "--quiet")
    return _empty_below(inner, roots, options, remove_foreign) and has_commit


def _find_repository(path: Path, roots: tuple[Path, ...]) -> Path | None:
    """Return the repository of a submodule if git created it for this slot, else None.

    An agent can put another repository there.
    """
    entry = path / ".git"
    if entry.is_symlink() or path.is_symlink():
        return None
    if entry.is_dir():
        return entry.resolve()
    git_dir = read_gitfile(entry)
    if git_dir is None:
        return None
    repository = git_dir.resolve()
    is_own = any(repository.is_relative_to(root) for root in roots)
    return repository if is_own and repository.is_dir() else None


def _remove(top: Path, path: Path) -> None:
    """Replace a submodule's path by an empty directory, without following a link."""
    if path.parent.resolve() != top.resolve() / path.parent.relative_to(top):
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)
    path.mkdir()


def salvage_submodules(git: Git, task: str, run: str, target: SalvageTarget | None = None) -> str | None:
    """Save the submodules of the slot of ``git`` as bundles. Return the ref, or None if none holds work of its own.

    Work is a changed or untracked file, or a commit that no remote branch contains. Raises GitFailed, OSError.
    """
    bundles = tuple((name, bundle_repository(git, inner)) for name, inner in _list_changed(git, _has_own_commits))
    return save_bundles(git, task, f"{run}{SUBMODULES_SUFFIX}", bundles, target) if bundles else None


def salvage_before_reset(git: Git, task: str, run: str, target: SalvageTarget | None = None) -> str | None:
    """Save what a reset of the submodules would discard: their changes, and HEAD if it is on no ref.

    Their repositories stay, so each bundle has only what no remote branch contains. Return the ref, or None if there is
    nothing to save. Raises GitFailed, OSError.
    """
    changed = _list_changed(git, _is_head_on_no_ref)
    bundles = tuple((name, bundle_repository(git, inner, only_work=True)) for name, inner in changed)
    return save_bundles(git, task, f"{run}{SUBMODULES_SUFFIX}", bundles, target) if bundles else None


def _list_changed(git: Git, has_commits: Callable[[Git], bool]) -> Iterator[tuple[str, Git]]:
    """Yield the submodules with work of their own, nested ones included, each with its path in the slot."""
    for name, inner in open_submodules(git):
        slot_records.remove_slot_locks(git_dirs(inner)[0])
        clear_hiding_flags(inner)
        if read_work_tree(inner).changed or has_commits(inner):
            yield name, inner


def _has_own_commits(inner: Git) -> bool:
    head = inner.find_commit("HEAD")
    starts = ("--all",) if head is None else ("--all", head)
    return inner.out("rev-list", "--max-count=1", *starts, "--not", "--remotes") != ""


def _is_head_on_no_ref(inner: Git) -> bool:
    head = inner.find_commit("HEAD")
    return head is not None and inner.out("rev-list", "--max-count=1", head, "--not", "--glob=refs/*") != ""
