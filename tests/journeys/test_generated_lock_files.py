"""Two tasks change a lock file: its command makes it again, and a coder who merges more than that reads how."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import QUICK, Crew, begun

COMMAND = "npm install --package-lock-only"
NPM = """#!/bin/sh
# npm, as far as these tests need it: the lock file has the names of all parts of the project.
[ "$*" = "install --package-lock-only" ] || exit 2
for part in *.txt; do echo "$part"; done > package-lock.json
"""
MENDS = """\
liza ready > "$NOTES/brief"
git merge -q --no-edit integration || true
eval "$(sed -n 's/.* is generated: do not merge it by hand, but: //p' "$NOTES/brief")"
git checkout -q --ours -- README.md
git add -A
git commit -q -m mended
liza submit
"""


def _work(crew: Crew, task: str, readme: str = "") -> None:
    """Do a task by hand: its part, the lock file and, with ``readme``, the page; then approve it."""
    crew.add(task)
    crew.prepare("claim", task, "--agent", f"coder-{ord(task) - ord('a') + 2}")
    there = worktree_of(crew.root, task)
    (there / f"{task}.txt").write_text("x\n")
    if readme:
        (there / "README.md").write_text(readme)
    names = sorted(path.name for path in there.glob("*.txt"))
    commit_all(there, f"work on {task}", {"package-lock.json": "".join(f"{name}\n" for name in names)})
    crew.prepare("submit", cwd=there)
    crew.prepare("verdict", "approve", "fine", "--task", task)


@pytest.mark.campaign
def test_lock_files_of_parallel_tasks_need_no_coder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual_path: str
) -> None:
    crew = begun(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "npm").write_text(NPM)
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{usual_path}")
    for name, text in (("package-lock.json", "z.txt\n"), ("z.txt", "x\n")):
        (crew.root / name).write_text(text)
    commit_all(crew.root, "lock file")
    told = crew.liza("init", "All parts are there", "--test", "ls *.txt | cmp - package-lock.json", "--no-proof")
    assert f"package-lock.json: `{COMMAND}` resolves a conflict only there" in told
    crew.configure(**QUICK)
    for task, readme in (("a", "by a\n"), ("b", ""), ("c", "by c\n")):
        _work(crew, task, readme)

    crew.liza("merge", "a")
    assert f"re-made: package-lock.json by {COMMAND}" in crew.liza("merge", "b")
    assert f"re-made: package-lock.json by {COMMAND}" in crew.liza("task", "show", "b")
    lock = crew.git("show", "integration:package-lock.json")
    assert lock.split() == ["a.txt", "b.txt", "z.txt"]
    assert "conflict with integration in README.md, package-lock.json" in crew.run("merge", "c").stdout

    try:
        crew.agent("coder-4", crew.script("coder", MENDS, ready=False))
        crew.wait_status("c", "READY_FOR_REVIEW")
        brief = (crew.notes / "brief").read_text()
        assert f"git checkout --theirs -- package-lock.json && {COMMAND}" in brief
        crew.liza("verdict", "approve", "fine", "--task", "c")
        crew.liza("merge", "c")
    finally:
        crew.clean()
    assert crew.git("show", "integration:package-lock.json").split() == ["a.txt", "b.txt", "c.txt", "z.txt"]
