"""Rows of worktrees: handing a used slot on, against `git worktree add`, on the same repository."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.options import Options
from benchmarks.rows import Row, Samples, summarize
from benchmarks.timing import milliseconds
from liza.git.runner import Git
from liza.git.worktrees import Worktrees
from liza.model.paths import Paths

RIVAL = "git worktree add"


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def create_repository(root: Path, files: int) -> None:
    """``files`` files of 2 KB in directories of fifty, on main and integration."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in range(files):
        path = root / f"dir{number // 50}" / f"file{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {number}\n" + "x = 1\n" * 340)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("/.liza\n/.worktrees\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "files")
    git(root, "branch", "integration")


def edit_slot(trees: Worktrees, slot: str) -> None:
    """What a task leaves: a commit with three changed files, merged; nothing unsaved."""
    directory = trees.paths.slot(slot)
    for path in sorted(directory.glob("dir1/*"))[:3]:
        path.write_text(path.read_text() + "y = 2\n")
    git(directory, "commit", "-qam", "work")
    git(trees.paths.root, "update-ref", "refs/heads/integration", trees.head_commit(slot))


SIZES = (200, 2_000, 20_000)
DEPENDENCIES = (3_000, 100_000)
"""Files in node_modules, and bytes of each: 300 MB."""


def measure(options: Options) -> Iterator[Row]:
    for files in (100,) if options.quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="worktrees-", dir=options.scratch) as directory:
            root = Path(directory) / "repo"
            create_repository(root, files)
            trees = Worktrees(Paths(root), Git(root))
            taken = _measure_rounds(options, trees, root, Path(directory))
        rival = {RIVAL: summarize(taken.pop(RIVAL))}
        for name, values in taken.items():
            yield Row("worktrees", f"{name}, {files} files", "ms", summarize(values), dict[str, Samples](rival))
    yield _measure_dependencies(options)


def _measure_dependencies(options: Options) -> Row:
    """A claim of a used slot that keeps 300 MB of dependencies, beside a new worktree with a copy of them."""
    count, size = (30, 10_000) if options.quick else DEPENDENCIES
    with tempfile.TemporaryDirectory(prefix="worktrees-", dir=options.scratch) as directory:
        root = Path(directory) / "repo"
        create_repository(root, 100 if options.quick else SIZES[0])
        modules = Path(directory) / "node_modules"
        for number in range(count):
            path = modules / f"package{number // 10}" / f"file{number}.js"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * size)
        (root / ".git" / "info" / "exclude").write_text("/.liza\n/.worktrees\nnode_modules/\n")
        trees = Worktrees(Paths(root), Git(root))
        trees.prepare("s1", "t0", "coder-1.1", None)
        trees.finish("s1", "t0", "coder-1.1")
        shutil.copytree(modules, trees.paths.slot("s1") / "node_modules")
        used, fresh = [], []

        def add(number: int) -> None:
            path = Path(directory) / f"w{number}"
            git(root, "worktree", "add", "-q", "-b", f"b{number}", str(path), "integration")
            shutil.copytree(modules, path / "node_modules")

        def claim(number: int) -> None:
            trees.prepare("s1", f"t{number}", f"coder-1.{number + 1}", None)
            trees.finish("s1", f"t{number}", f"coder-1.{number + 1}")

        for number in range(1, options.rounds(10) + 1):
            fresh.append(milliseconds(lambda: add(number)))  # noqa: B023
            edit_slot(trees, "s1")
            used.append(milliseconds(lambda: claim(number)))  # noqa: B023
            shutil.rmtree(Path(directory) / f"w{number}")
        if not (trees.paths.slot("s1") / "node_modules" / "package0" / "file0.js").exists():
            raise AssertionError("the dependencies did not survive the reuse of the slot")
    name = f"claim of a used slot with {count * size // 1_000_000} MB of dependencies"
    return Row("worktrees", name, "ms", summarize(used), {f"{RIVAL}, and a copy of them": summarize(fresh)})


def _measure_rounds(options: Options, trees: Worktrees, root: Path, directory: Path) -> dict[str, list[float]]:
    def add(number: int) -> None:
        git(root, "worktree", "add", "-q", "-b", f"b{number}", str(directory / f"w{number}"), "integration")

    def claim(number: int) -> None:
        trees.prepare("s1", f"t{number}", f"coder-1.{number}", None)
        trees.finish("s1", f"t{number}", f"coder-1.{number}")

    def keep_unfinished(number: int) -> None:
        (trees.paths.slot("s2") / "unfinished").write_text(f"{number}\n")
        trees.prepare("s2", "same", f"coder-2.{number}", None)
        trees.finish("s2", "same", f"coder-2.{number}")

    def review(number: int) -> None:
        trees.detach("code-reviewer-1", "integration" if number % 2 else "main", f"code-reviewer-1.{number}")

    names = (
        RIVAL,
        "claim of a used slot",
        "claim with unfinished files",
        "reviewer's slot to another commit",
        "changes in a slot",
    )
    taken: dict[str, list[float]] = {name: [] for name in names}
    taken["claim of a new slot"] = [milliseconds(lambda: claim(10_000))]
    trees.prepare("s2", "same", "coder-2.1000", None)
    trees.finish("s2", "same", "coder-2.1000")
    review(0)
    for number in range(1, options.rounds(15) + 1):
        taken[names[0]].append(milliseconds(lambda: add(number)))  # noqa: B023
        edit_slot(trees, "s1")
        taken[names[1]].append(milliseconds(lambda: claim(number)))  # noqa: B023
        taken[names[2]].append(milliseconds(lambda: keep_unfinished(number)))  # noqa: B023
        taken[names[3]].append(milliseconds(lambda: review(number)))  # noqa: B023
        taken[names[4]].append(milliseconds(lambda: trees.list_changes("code-reviewer-1")))
    return taken
