"""A brief lies in the agent's instructions file, and git never sees it: not in a status, not in any commit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import commit_all
from tests.journeys.crews import APPROVE, Crew, begun

FIRST_ACT = """\
git status --porcelain > "$NOTES/status-$LIZA_RUN"
for name in AGENTS.md CLAUDE.md; do
    grep -c 'liza:begin run='"$LIZA_RUN" "$name" > "$NOTES/$name-$LIZA_RUN" 2>/dev/null || true
done
case "$LIZA_RUN" in coder-*) liza ready > "$NOTES/brief-$LIZA_RUN" ;; esac
"""
CODER = (
    FIRST_ACT
    + """\
echo work > "$LIZA_TASK.txt"
git add -A
git commit -q -a -m "with everything"
git commit -q --allow-empty -m "and once more"
git -c rebase.autoStash=true rebase -q --force-rebase HEAD~2
git merge -q --no-edit integration
git add -A
git add --renormalize .
git diff --cached --quiet || git commit -q -m "renormalised"
git stash list > "$NOTES/stash"
git status --porcelain > "$NOTES/status-after"
liza submit
"""
)


def absent(root: Path) -> None:
    """No instructions file at all."""


def tracked(root: Path) -> None:
    (root / "AGENTS.md").write_text("# Rules\n\nBe kind.\n")


def without_a_final_newline(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"# Rules\n\nBe kind.")


def with_crlf(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"# Rules\r\n\r\nBe kind.\r\n")


def a_link_inside(root: Path) -> None:
    (root / "CLAUDE.md").write_text("# Rules\n")
    (root / "AGENTS.md").symlink_to("CLAUDE.md")


def a_link_outside(root: Path) -> None:
    (root.parent / "mine.md").write_text("# My own\n")
    (root / "AGENTS.md").symlink_to(root.parent / "mine.md")


@pytest.mark.parametrize(
    "lay",
    [
        absent,
        pytest.param(tracked, marks=pytest.mark.campaign),
        pytest.param(without_a_final_newline, marks=pytest.mark.campaign),
        pytest.param(with_crlf, marks=pytest.mark.campaign),
        pytest.param(a_link_inside, marks=pytest.mark.campaign),
        pytest.param(a_link_outside, marks=pytest.mark.campaign),
    ],
    ids=lambda one: one.__name__,
)
def test_git_sees_no_brief_in_any_instructions_file(tmp_path: Path, lay: Callable[[Path], None]) -> None:
    crew = begun(tmp_path)
    lay(crew.root)
    if crew.git("status", "--porcelain"):
        commit_all(crew.root, "rules")
    texts = {path.name: path.read_bytes() for path in crew.root.glob("*.md")}
    crew.liza("init", "Every file is there", "--no-test")
    crew.add("task-1")
    try:
        said = loop(crew)
    finally:
        crew.clean()

    assert notes(crew, "status-") == {"coder-1.1": "", "code-reviewer-1.1": "", "after": ""}
    shown = (crew.notes / "brief-coder-1.1").read_text()
    assert "TASK task-1" in shown
    if lay is not a_link_outside:
        assert notes(crew, "AGENTS.md-") == {"coder-1.1": "1\n", "code-reviewer-1.1": "1\n"}
    else:
        assert (tmp_path / "mine.md").read_text() == "# My own\n"
        assert "coder-1.1 gets its brief in the prompt: AGENTS.md is a link that leads out of the worktree" in said
    assert holders(crew) == []
    for name, text in texts.items():
        assert crew.git("rev-parse", f"integration:{name}") == crew.git("rev-parse", f"main:{name}")
        assert (crew.root / name).read_bytes() == text
    assert crew.git("ls-tree", "--name-only", "integration").splitlines() == sorted([*texts, "task-1.txt"])
    assert crew.git("status", "--porcelain") == ""
    for slot in ("s1", "code-reviewer-1"):
        place = crew.paths.slot(slot)
        assert [path.name for path in place.glob("*.md") if b"liza:begin" in path.read_bytes()] == []
        assert crew.git("status", "--porcelain", "--ignored", cwd=place) == ""
    files = [crew.root / ".git" / "info" / name for name in ("attributes", "exclude")]
    assert [path for path in files if path.exists() and "run=" in path.read_text()] == []


def loop(crew: Crew) -> str:
    """One task, through to its merge, by an agent that commits whatever it sees; what its supervisor said."""
    coder = crew.agent("coder-1", crew.script("coder", CODER, ready=False))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert coder.stop() == 0
    reviewer = crew.agent("code-reviewer-1", crew.script("reviewer", FIRST_ACT + APPROVE, ready=False))
    crew.wait_status("task-1", "MERGED")
    assert reviewer.stop() == 0
    return coder.said()


def notes(crew: Crew, prefix: str) -> dict[str, str]:
    return {path.name.removeprefix(prefix): path.read_text() for path in crew.notes.glob(f"{prefix}*")}


def holders(crew: Crew) -> list[str]:
    """Commits of any ref but the history's, and of any reflog, that hold a brief's mark in any file."""
    history = set(crew.git("rev-list", "refs/liza/blackboard").split())
    commits = set(crew.git("rev-list", "--all", "--reflog").split()) - history
    return [one for one in sorted(commits) if _holds(crew, one)]


def _holds(crew: Crew, commit: str) -> bool:
    words = ["git", "grep", "-q", "liza:begin run=", commit, "--"]
    done = subprocess.run(words, cwd=crew.root, check=False)
    assert done.returncode in (0, 1)
    return done.returncode == 0


def test_text_an_agent_writes_beside_a_brief_is_not_lost(crew: Crew) -> None:
    crew.add("task-1")
    program = crew.script(
        "coder",
        """\
        echo work > task-1.txt
        git add -A -f
        git commit -q -m work
        liza submit 2> "$NOTES/empty" || true
        git rm -r -q --cached -- AGENTS.md
        git commit -q --amend --no-edit
        echo "a rule of mine" >> AGENTS.md
        code=0
        liza submit 2> "$NOTES/refused" || code=$?
        echo "$code" >> "$NOTES/refused"
        git add -f AGENTS.md
        git commit -q -m "with my rule"
        liza submit
        """,
    )
    crew.agent("coder-1", program)
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    told = crew.wait_note("refused")
    assert "the commit adds AGENTS.md (1 file): it is empty" in crew.wait_note("empty")
    assert "git add -f AGENTS.md" in told
    assert told.endswith("\n1\n")
    assert crew.git("show", "task/task-1:AGENTS.md") == "a rule of mine"
    assert holders(crew) == []


@pytest.mark.campaign
def test_a_private_file_of_worktrees_is_refused_in_commits(crew: Crew) -> None:
    """Ignored files such as AGENTS.md and .env are copied by `--copy` or `.worktreeinclude`: they are the person's."""
    (crew.root / ".git" / "info" / "exclude").open("a").write("AGENTS.md\n.env\n")
    (crew.root / "AGENTS.md").write_text("my private rules\n")
    (crew.root / ".env").write_text("A=1\n")
    crew.liza("config", "set", "sandbox_copy", "AGENTS.md,.env*")
    crew.add("task-1")
    program = crew.script(
        "coder",
        """\
        cp AGENTS.md "$NOTES/rules"
        touch .env.example
        git add -f .env .env.example
        git commit -q -m work
        liza submit 2> "$NOTES/refused" || true
        sh -c "$(sed -n 's/^  next: //p' "$NOTES/refused")"
        """,
    )
    crew.agent("coder-1", program)
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert "my private rules\n" in (crew.notes / "rules").read_text()
    assert "the commit adds .env (1 file)" in (crew.notes / "refused").read_text()
    assert {"AGENTS.md", ".env", ".env.example"} & {*crew.git("ls-tree", "--name-only", "task/task-1").split()} == {
        ".env.example"
    }
