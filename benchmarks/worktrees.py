"""Handing a used slot on, against making a new work tree: the same repository, the same machine, the same run.

Prints a table of milliseconds. Run it as ``python benchmarks/worktrees.py [FILES] [ROUNDS]``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from liza.repo.config_pins import Pins
from liza.repo.runner import Git
from liza.repo.slots.pool import Worktrees
from liza.rules.paths import Paths


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def repository(root: Path, files: int) -> None:
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


def timed(rounds: int, act: Callable[[int], None], after: Callable[[int], None] = lambda _: None) -> list[float]:
    found = []
    for number in range(rounds):
        start = time.perf_counter()
        act(number)
        found.append((time.perf_counter() - start) * 1000)
        after(number)
    return found


def edited(trees: Worktrees, slot: str) -> None:
    """What a task leaves behind: a commit with three files changed, merged; nothing unsaved."""
    place = trees.paths.slot(slot)
    for path in sorted(place.glob("dir1/*"))[:3]:
        path.write_text(path.read_text() + "y = 2\n")
    git(place, "commit", "-qam", "work")
    git(trees.paths.root, "update-ref", "refs/heads/integration", trees.head_commit(slot))


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    with tempfile.TemporaryDirectory(prefix="liza-bench-") as folder:
        root = Path(folder) / "repo"
        repository(root, files)
        trees = Worktrees(Paths(root), Git(root, Pins.capture(Git(root))))

        def add(number: int) -> None:
            git(root, "worktree", "add", "-q", "-b", f"b{number}", str(Path(folder) / f"w{number}"), "integration")

        def claim(number: int) -> None:
            trees.prepare("s1", f"t{number}", f"coder-1.{number}", None)
            trees.finish("s1", f"t{number}", f"coder-1.{number}")

        def unfinished(number: int) -> None:
            (trees.paths.slot("s1") / "unfinished").write_text(f"{number}\n")
            trees.prepare("s1", "same", f"coder-1.{number}", None)
            trees.finish("s1", "same", f"coder-1.{number}")

        rows = {
            "git worktree add -b (rival)": timed(rounds, add),
            "first claim of a new slot": timed(1, lambda _: claim(10_000)),
            "claim of a used slot": timed(rounds, claim, lambda _: edited(trees, "s1")),
            "the same, unfinished files saved and laid back": timed(rounds, unfinished),
            "reviewer's slot put at another commit": timed(
                rounds,
                lambda n: trees.detach("code-reviewer-1", "integration" if n % 2 else "main", f"code-reviewer-1.{n}"),
            )[1:],
            "dirty(): what submit asks": timed(rounds, lambda _: assert_clean(trees)),
        }
    rival = statistics.median(rows["git worktree add -b (rival)"])
    print(f"{files} files, {rounds} rounds{'':24} median ms      max   times faster")
    for name, values in rows.items():
        print(
            f"{name:48} {statistics.median(values):9.1f} {max(values):8.1f} {rival / statistics.median(values):14.1f}"
        )


def assert_clean(trees: Worktrees) -> None:
    assert trees.list_changes("code-reviewer-1") == ()


if __name__ == "__main__":
    main()
