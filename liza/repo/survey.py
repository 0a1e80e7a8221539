"""What a repository looks like before anything is done to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from liza.repo.config_pins import Pins, git_dirs
from liza.repo.runner import FALLBACK_IDENTITY, ConfigOverrides, Git
from liza.rules.errors import GitFailed, Missing

_OPERATION_FILES = (
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("sequencer", "cherry-pick"),
    ("BISECT_LOG", "bisect"),
)


@dataclass(frozen=True)
class Survey:
    """A repository as it stands.

    ``root`` is the top of the checkout (of a bare one, the git directory). ``branch`` is None when HEAD is detached,
    ``head`` None before the first commit. ``in_progress`` names a merge, rebase or the like that was not concluded.
    ``dirty_count`` counts changed and untracked files. ``worktree_of`` is the main checkout, in a linked one.
    """

    root: Path
    branch: str | None
    head: str | None
    bare: bool
    in_progress: str | None
    dirty_count: int
    identity: tuple[str, str] | None
    git_version: str
    worktree_of: Path | None

    @property
    def has_merge_tree(self) -> bool:
        """Whether this git knows ``merge-tree --write-tree`` (2.38 and later)."""
        return tuple(int(part) for part in self.git_version.split(".")[:2]) >= (2, 38)


def survey(directory: Path, pins: ConfigOverrides | None = None) -> Survey:
    """Look at the repository that ``directory`` is in. Raises Missing outside of one, GitFailed.

    Without ``pins`` no program that the repository's configuration names is run, whoever wrote it.
    """
    git = Git(directory)
    version = re.search(r"[0-9]+\.[0-9]+(\.[0-9]+)?", git.out("version"))
    try:
        bare = git.out("rev-parse", "--is-bare-repository") == "true"
    except GitFailed as error:
        if "not a git repository" not in error.message:
            raise
        raise Missing(f"{directory} is not in a git repository", "git init") from error
    own, common = git_dirs(git)
    # In a git directory itself there is no checkout to speak of either.
    inside = git.out("rev-parse", "--is-inside-work-tree") == "true"
    root = Path(git.out("rev-parse", "--show-toplevel")) if inside else own
    here = replace(git.at(root), pins=pins or Pins.from_user_config(git))
    identity = here.identity()
    return Survey(
        root=root,
        branch=_current_branch(here),
        head=_head_commit(here),
        bare=bare,
        in_progress=find_operation(own),
        dirty_count=len(list_changed_files(here)) if inside else 0,
        identity=None if identity == FALLBACK_IDENTITY else identity,
        git_version=version.group(0) if version else "0.0",
        worktree_of=common.parent if own != common and inside else None,
    )


def find_operation(git_dir: Path) -> str | None:
    """The merge, rebase, cherry-pick, revert or bisect that was begun and not concluded."""
    return next((word for name, word in _OPERATION_FILES if (git_dir / name).exists()), None)


@dataclass(frozen=True)
class WorkTreeState:
    """A work tree at one moment: the commit at HEAD (None before the first), names of changed and untracked files."""

    head: str | None
    changed: tuple[str, ...]


def read_work_tree(git: Git) -> WorkTreeState:
    """Names are relative to the top; an untracked directory is one name with a slash; a renamed file is two names.

    What happens inside submodules is not asked: their configuration is nobody's pin. Raises GitFailed.
    """
    words = git.names(
        "--no-optional-locks",
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
    )
    head: str | None = None
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        kind = word[0]
        if word.startswith("# branch.oid "):
            head = None if word.endswith("(initial)") else word.split(" ")[2]
        elif kind != "#":
            # Fields before the name: 1 XY sub 3 modes 2 objects, 2 has a score more, u has 4 modes and 3 objects.
            found.append(word.split(" ", {"1": 8, "2": 9, "u": 10}.get(kind, 1))[-1])
        if kind == "2":
            found.append(next(rest))
    return WorkTreeState(head, tuple(found))


def list_changed_files(git: Git) -> tuple[str, ...]:
    """The changed and untracked files of ``look``. Raises GitFailed."""
    return read_work_tree(git).changed


def _current_branch(git: Git) -> str | None:
    done = git.run("symbolic-ref", "-q", "--short", "HEAD", codes=(0, 1))
    return done.stdout.decode("utf-8", "surrogateescape").strip() or None


def _head_commit(git: Git) -> str | None:
    done = git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", codes=(0, 1))
    return done.stdout.decode().strip() or None
