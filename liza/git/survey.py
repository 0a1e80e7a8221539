"""Facts about a repository, read before Liza changes anything."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.git_refs import current_branch
from liza.git.rules.git_operations import GitOperation
from liza.git.runner import FALLBACK_IDENTITY, Git
from liza.model.errors import GitFailed, Missing, NotRegularFile, Refused
from liza.model.value_classes import Value, replace
from liza.system import files, untrusted_files

IDENTITY_COMMAND = 'git config --global user.name "You" && git config --global user.email you@example.org'
FIRST_COMMIT_COMMAND = 'git add -A && git commit --allow-empty -m "start"'
_OPERATION_FILES = (
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("sequencer", "cherry-pick"),
    ("BISECT_LOG", "bisect"),
)
"""The files of git that show an operation in progress. Within a rebase, git commits a merge before it continues."""
_COMMIT_FILES = {
    "MERGE_HEAD": ("MERGE_HEAD",),
    "rebase-merge": ("rebase-merge/onto",),
    "rebase-apply": ("rebase-apply/onto",),
    "CHERRY_PICK_HEAD": ("sequencer/todo", "CHERRY_PICK_HEAD"),
    "REVERT_HEAD": ("sequencer/todo", "REVERT_HEAD"),
    "sequencer": ("sequencer/todo",),
}
"""Where the commits of an operation are: the first of the files that exists."""
_NEED_CHANGE = ("rebase-apply/applying", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_MAX_STATE_FILE = 1 << 16  # bytes of a file with commits


class Survey(Value):
    """Facts about a repository.

    ``root`` is the top of the checkout (without one, the git directory), ``repository`` the git directory that all
    worktrees share. ``branch`` is None if HEAD is detached, ``head`` None before the first commit. ``dirty_count``
    counts changed and untracked files. In a linked worktree or in the git directory, ``main_checkout`` is the main
    checkout. ``bare``: there is no main checkout, or git does not record where it is.
    """

    root: Path
    repository: Path
    branch: str | None
    head: str | None
    bare: bool
    dirty_count: int
    identity: tuple[str, str] | None
    git_version: str
    main_checkout: Path | None

    @property
    def has_merge_tree(self) -> bool:
        """Whether this git has ``merge-tree --write-tree`` (git 2.38 or later)."""
        return tuple(int(part) for part in self.git_version.split(".")[:2]) >= (2, 38)


def survey(directory: Path) -> Survey:
    """Return the facts about the repository that contains ``directory``. Raises Missing outside of one, GitFailed."""
    git = Git(directory)
    version = re.search(r"[0-9]+\.[0-9]+(\.[0-9]+)?", git.out("version"))
    try:
        git_dir, common = git_dirs(git)
    except GitFailed as error:
        if "safe.directory" in error.hint:
            raise Refused(f"git does not trust {directory}: another user owns it", error.hint) from error
        if _has_repository(directory):
            raise
        raise Missing(f"{directory} is not in a git repository", begin_command(git)) from error
    # A git directory has no checkout, either.
    has_checkout = git.out("rev-parse", "--is-inside-work-tree") == "true"
    root = Path(git.out("rev-parse", "--show-toplevel")) if has_checkout else git_dir
    root_git = git.at(root)
    identity = root_git.identity()
    is_linked = not has_checkout or git_dir != common
    main_checkout = find_main_checkout(git, common) if is_linked else None
    return Survey(
        root=root,
        repository=common,
        branch=current_branch(root_git),
        head=root_git.find_commit("HEAD"),
        bare=is_linked and main_checkout is None,
        dirty_count=len(read_work_tree(root_git).changed) if has_checkout else 0,
        identity=None if identity == FALLBACK_IDENTITY else identity,
        git_version=version.group(0) if version else "0.0",
        main_checkout=main_checkout,
    )


def find_main_checkout(git: Git, common: Path) -> Path | None:
    """Return the main checkout of a repository; None if it is bare, or git does not record where it is."""
    shared = git.at(common).with_environment(GIT_DIR=str(common))
    if shared.out("rev-parse", "--is-bare-repository") == "true":
        return None
    configured = shared.run("config", "--get", "core.worktree", codes=(0, 1)).stdout.decode().removesuffix("\n")
    if configured:
        return (common / configured).resolve()
    return common.parent if common.name == ".git" else None


def begin_command(git: Git) -> str:
    """Return the command that makes a repository of the directory of ``git``, or of a new one in the home directory."""
    first = [] if git.identity() != FALLBACK_IDENTITY else [IDENTITY_COMMAND]
    if holds_home(git.directory):
        project = files.find_free_path(git.directory / "project")
        first = [shlex.join(["mkdir", project.name]), shlex.join(["cd", project.name]), *first]
    return " && ".join([*first, "git init", FIRST_COMMIT_COMMAND])


def clone_command(repository: Path) -> tuple[str, Path]:
    """Return the command that clones a repository to a new directory beside it, or in the home directory, and that
    directory.
    """
    source = repository.parent if repository.name == ".git" else repository
    name = "crew" if source.name.startswith(".") else f"{source.name.removesuffix('.git')}-crew"
    is_near = os.access(source.parent, os.W_OK) and not holds_home(source)
    clone = files.find_free_path((source.parent if is_near else _home()) / name)
    return f"{shlex.join(['git', 'clone', str(source), str(clone)])} && {shlex.join(['cd', str(clone)])}", clone


def holds_home(directory: Path) -> bool:
    """Return whether a directory is the home directory, or one above it."""
    return _home().is_relative_to(directory.resolve())


def _home() -> Path:
    return Path(os.environ.get("HOME") or "/").resolve()


def _has_repository(directory: Path) -> bool:
    """Return whether git's search finds a repository from this directory on upwards, valid or not.

    git has no exit status of its own for "no repository": it is 128, as for a repository that it refuses to read.
    """
    physical = directory.resolve()
    return any(
        _is_git_file(parent / ".git") or _is_git_directory(parent / ".git") or _is_git_directory(parent)
        for parent in (physical, *physical.parents)
    )


def _is_git_file(path: Path) -> bool:
    with suppress(OSError):
        return path.is_file()
    return False


def _is_git_directory(directory: Path) -> bool:
    """Return whether a directory has what git itself requires of a git directory."""
    return all(os.path.lexists(directory / name) for name in ("HEAD", "objects", "refs"))


def find_operation(git_dir: Path) -> GitOperation | None:
    """Return the merge, rebase, am, cherry-pick, revert or bisect in progress, without its conflicts, or None."""
    for file, name in _OPERATION_FILES:
        if (git_dir / file).exists():
            return _read_operation(git_dir, file, name)
    return None


def _read_operation(git_dir: Path, file: str, name: str) -> GitOperation:
    """Return an operation with its commits. A list of commits has lines such as ``pick 1a2b3c4 subject``."""
    text = ""
    for other in _COMMIT_FILES.get(file, ()):
        with suppress(OSError, NotRegularFile), untrusted_files.open_to_read(git_dir / other) as opened:
            text = opened.read(_MAX_STATE_FILE).decode("utf-8", "surrogateescape")
            break
    rows = [row.split() for row in text.splitlines() if row.strip() and not row.startswith("#")]
    if file == "sequencer" and rows and rows[0][0] == "revert":
        name = "revert"
    words = [row[1] if row[0] in ("pick", "revert") and len(row) > 1 else row[0] for row in rows]
    commits = tuple(word for word in words if re.fullmatch("[0-9a-f]{4,64}", word))
    return GitOperation(name, commits, file in _NEED_CHANGE)


def read_unfinished(git: Git) -> GitOperation | None:
    """Return the operation in progress with its conflicts, or None. Raises GitFailed."""
    # Not `git diff`, which reads files: each conflict has up to three rows, with the name behind a tab.
    rows = git.names("ls-files", "-u", "-z")
    conflicts = tuple(dict.fromkeys(row.partition("\t")[2] for row in rows))
    return add_conflicts(find_operation(git.git_dir or git_dirs(git)[0]), conflicts)


def describe_operation(checkout: Path) -> tuple[str, str] | None:
    """Return the operation in progress in a checkout of the person, and the next step; None without one.

    Raises GitFailed.
    """
    git = Git(checkout)
    operation = read_unfinished(git)
    if operation is None:
        return None
    state = read_work_tree(git)
    step = operation.next_step(len(state.changed) > len(state.untracked))
    if checkout != Path.cwd():
        # The step for conflicts begins with words.
        step = f"cd {shlex.quote(str(checkout))} && {'git status' if operation.conflicts else step}"
    return operation.describe(str(checkout)), step


def add_conflicts(operation: GitOperation | None, conflicts: tuple[str, ...]) -> GitOperation | None:
    """Return the operation with its conflicts; conflicts without an operation are one without a name."""
    if not conflicts:
        return operation
    return replace(operation or GitOperation(), conflicts=conflicts)


class WorkTreeState(Value):
    """State of a worktree at one moment: the commit at HEAD (None before the first), names of changed and untracked
    files, and the branch (None if HEAD is detached). ``untracked`` and ``conflicts`` are also in ``changed``."""

    head: str | None
    changed: tuple[str, ...]
    branch: str | None
    untracked: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def read_work_tree(git: Git) -> WorkTreeState:
    """Return the state of a worktree. Raises GitFailed.

    Names are relative to the top. An untracked directory is one name with a slash, a renamed file two names. Changes
    inside submodules are not read.
    """
    fields = git.names(
        "--no-optional-locks",
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
    )
    head: str | None = None
    branch: str | None = None
    names: list[str] = []
    by_kind: dict[str, list[str]] = {}
    rest = iter(fields)
    for field in rest:
        kind = field[0]
        if field.startswith("# branch.oid "):
            head = None if field.endswith("(initial)") else field.split(" ")[2]
        elif field.startswith("# branch.head "):
            branch = None if field.endswith(" (detached)") else field.split(" ", 2)[2]
        elif kind != "#":
            # Fields before the name: 1 XY sub 3 modes 2 objects, 2 has a score more, u has 4 modes and 3 objects.
            names.append(field.split(" ", {"1": 8, "2": 9, "u": 10}.get(kind, 1))[-1])
            by_kind.setdefault(kind, []).append(names[-1])
        if kind == "2":
            names.append(next(rest))
    # A file that only the index has as deleted has two rows.
    return WorkTreeState(
        head, tuple(dict.fromkeys(names)), branch, tuple(by_kind.get("?", ())), tuple(by_kind.get("u", ()))
    )


def find_conflict_markers(git: Git, base: str, head: str) -> tuple[str, ...]:
    """Return ``FILE:LINE`` of the first conflict that the commits since ``base`` left in each file. Raises GitFailed.

    A conflict has the three markers in their order; a line of equals signs alone is a heading. git finds the markers
    with the length that the attribute ``conflict-marker-size`` of the file gives.
    """
    done = git.run("diff", "--check", "--find-renames", "--no-ext-diff", "--no-color", base, head, "--", codes=(0, 2))
    numbers: dict[str, list[int]] = {}
    for row in done.stdout.decode("utf-8", "surrogateescape").split("\n"):
        if match := re.fullmatch(r"(.*):([0-9]+): leftover conflict marker", row):
            numbers.setdefault(match[1], []).append(int(match[2]))
    markers = []
    for name, lines in numbers.items():
        rows = git.run("cat-file", "blob", f"{head}:{name}", codes=(0,)).stdout.split(b"\n")
        first = b"".join(rows[line - 1][:1] for line in lines)
        if conflict := re.search(b"<.*=.*>", first):
            markers.append(f"{name}:{lines[conflict.start()]}")
    return tuple(markers)


def find_scratch(git: Git) -> Path | None:
    """Return the directory for temporary files that git reads; None for /tmp, which a box does not show."""
    return None if git.box is None else git_dirs(git)[0]


@contextmanager
def copy_index(git: Git) -> Iterator[Git]:
    """Yield git with a copy of the index of a worktree. Raises GitFailed.

    The copy keeps the file times, its own too, so that git knows which files may have changed since.
    """
    with tempfile.TemporaryDirectory(prefix="liza-index-", dir=find_scratch(git)) as folder:
        index = Path(folder) / "index"
        git_dir = git.git_dir or git_dirs(git)[0]
        with suppress(FileNotFoundError), untrusted_files.open_to_read(git_dir / "index") as file:
            with index.open("wb") as copy:
                shutil.copyfileobj(file, copy)
            status = os.fstat(file.fileno())
            os.utime(index, ns=(status.st_atime_ns, status.st_mtime_ns))
        yield git.with_environment(GIT_INDEX_FILE=str(index))
