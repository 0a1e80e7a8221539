"""What of integration a branch has is judged by content: squash and rebase merges, with real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.git.integration_tip import find_landed
from liza.git.runner import Git
from tests.conftest import git, variant

BASE = "\n".join(map(str, range(20))) + "\n"
CASES = {
    # What happens on main and integration, and the newest task whose work main has.
    "a merge commit": ("task a; merge", "a"),
    "a fast-forward": ("task a; forward", "a"),
    "a squash": ("task a; squash", "a"),
    "a squash of two tasks": ("task a; task b; squash", "b"),
    "a squash between commits of others": ("other; task a; other; squash; other", "a"),
    "a squash, then a new task": ("task a; squash; task b", "a"),
    "a squash, a sync, then a new task": ("task a; squash; sync; task b", "sync"),
    "a squash, a sync, nothing new": ("task a; squash; sync", "sync"),
    "a squash, a new task, then a sync": ("task a; squash; task b; sync", "a"),
    "two squashes, synced between them": ("task a; squash; sync; task b; squash; task c", "b"),
    "two squashes, never synced": ("task a; squash; task b; squash; task c", "b"),
    "a rebase merge": ("task a; task b; rebase", "b"),
    "a rebase merge of the first task only": ("task a; rebase; task b", "a"),
    "a squash, then others change the same line": ("line a; squash; line main", "a"),
    "a squash, then others append at the same place": ("end a; squash; end main", "a"),
    "a file that came and went before the squash": ("task a; task b; drop a; squash; task c", "drop a"),
    # No work of integration may count as landed because main has something like it.
    "nothing landed": ("task a", ""),
    "nothing landed, others committed": ("task a; other", ""),
    "nothing landed, others changed the same line": ("line a; line main", ""),
    "nothing landed, others changed the same line, synced with ours": ("line a; other; sync", ""),
    "one of two tasks picked": ("task a; task b; pick b", ""),
    "a squash that was reverted": ("task a; squash; revert", ""),
    "a squash that was reverted, and a line changed": ("line a; squash; revert; line main", ""),
    "a part of the task only": ("line a; also a; squash; unpick f.txt; other", ""),
    "a squash, then a new name for the file": ("task a; squash; move a", ""),
    "a squash without one of its files": ("both a; squash; unpick a.txt", ""),
    "a task that takes an earlier one back": ("task a; drop a", ""),
    "an unrelated history": ("task a; orphan", ""),
}

DAILY = {
    "a squash",
    "a squash between commits of others",
    "a squash, a sync, then a new task",
    "a squash, a new task, then a sync",
    "a rebase merge",
    "a squash, then others append at the same place",
    "nothing landed, others committed",
    "a squash that was reverted",
    "a squash without one of its files",
}
"""The cases that run each time; the others are for campaigns."""


class History:
    """A repository with main and integration, and the names of integration's commits."""

    def __init__(self, root: Path) -> None:
        self.root, self.names, self.number = root, dict[str, str](), 0
        git(root, "init", "-q", "-b", "main")
        self.commit("main", {"f.txt": BASE})
        git(root, "branch", "integration")

    def run(self, *args: str) -> str:
        return git(self.root, *args)

    def tip(self, branch: str) -> str:
        return self.run("rev-parse", branch)

    def commit(self, branch: str, files: dict[str, str | None], message: str = "work") -> None:
        for name, text in files.items():
            if text is None:
                self.run("rm", "-q", name)
            else:
                (self.root / name).write_text(text)
        self.run("add", "-A")
        self.run("commit", "-q", "-m", message)

    def text(self, name: str = "f.txt") -> str:
        return (self.root / name).read_text()

    def do(self, step: str) -> None:
        what, _, name = step.partition(" ")
        self.number += 1
        is_mains = what in (
            "other",
            "squash",
            "rebase",
            "merge",
            "forward",
            "pick",
            "revert",
            "unpick",
            "move",
            "orphan",
        )
        branch = "main" if is_mains or name == "main" else "integration"
        self.run("checkout", "-q", branch)
        match what:
            case "task":
                self.commit(branch, {f"{name}.txt": f"{name}\n"}, name)
            case "also":
                self.commit(branch, {"also.txt": "also\n"}, name)
            case "both":
                self.commit(branch, {"f.txt": self.text().replace("5\n", f"five of {name}\n", 1), "a.txt": "a\n"}, name)
            case "line":
                lines = self.text().split("\n")
                self.commit(branch, {"f.txt": "\n".join([*lines[:10], f"ten of {name}", *lines[11:]])}, name)
            case "end":
                self.commit(branch, {"f.txt": self.text() + f"of {name}\n"}, name)
            case "drop":
                self.commit(branch, {f"{name}.txt": None}, step)
            case "move":
                self.run("mv", f"{name}.txt", f"{name}.moved")
                self.commit(branch, {}, step)
            case "other":
                self.commit(branch, {f"other-{self.number}.txt": "other\n"}, step)
            case "squash":
                self.run("merge", "-q", "--squash", "-X", "theirs", "integration")
                self.commit(branch, {}, "Sprint")
            case "merge":
                self.run("merge", "-q", "--no-ff", "-m", "Sprint", "integration")
            case "forward":
                self.run("merge", "-q", "--ff-only", "integration")
            case "rebase":
                self.commit(branch, {"other.txt": "other\n"})
                self.run("cherry-pick", "HEAD~1..integration")
            case "pick":
                self.run("cherry-pick", "integration")
            case "revert":
                self.run("revert", "--no-edit", "HEAD")
            case "unpick":
                parent = f"HEAD~1:{name}"
                exists = name in self.run("ls-tree", "--name-only", "HEAD~1").split()
                self.commit(branch, {name: self.run("show", parent) + "\n" if exists else None}, "tidy")
            case "sync":
                self.run("merge", "-q", "--no-ff", "-m", "sync", "main")
            case "orphan":
                self.run("checkout", "-q", "--orphan", "alone")
                self.run("commit", "-q", "-m", "alone")
                self.run("branch", "-f", "main", "alone")
        if branch == "integration":
            self.names[self.tip("integration")] = step if what == "drop" else name or what


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("steps", "landed"),
    [pytest.param(*row, id=name) if name in DAILY else variant(*row, name=name) for name, row in CASES.items()],
)
def test_work_counts_as_landed_only_if_the_branch_has_everything(steps: str, landed: str, tmp_path: Path) -> None:
    history = History(tmp_path)
    for step in steps.split("; "):
        history.do(step)
    base, tip = history.tip("main"), history.tip("integration")
    commit = find_landed(Git(tmp_path), base, tip)
    assert history.names.get(commit, "") == landed
    assert landed or commit == base
