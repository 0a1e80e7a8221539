"""Files of the checkout that a worktree lacks: what hooks need, and what `.worktreeinclude` names."""

from __future__ import annotations

import shlex
from contextlib import chdir
from pathlib import Path

import pytest

from liza.cli import app
from liza.crew.crew import find_crew
from liza.git import local_files, slot_setup
from liza.git.runner import Git
from liza.model.errors import Finding
from liza.project import hook_files
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery.doctor import doctor
from tests.conftest import commit_all, git

SHELL, HUSKY = "#!/bin/sh\n", ".husky"
LEFTHOOK = f"{SHELL}# lefthook\nelif /bin/true -h\nthen /bin/true\nelif yarn lefthook -h\nthen yarn lefthook; fi\n"


def write(root: Path, files: dict[str, str]) -> None:
    """Write executable files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("hooks_path", "files", "needed"),
    [
        # husky 5 to 8, and 9, where the hook itself is not tracked
        (HUSKY, {".husky/pre-commit": '. "$(dirname "$0")/_/h.sh"\n', ".husky/_/h.sh": ""}, [".husky/_/h.sh"]),
        (
            HUSKY,
            {".husky/pre-commit": '. "$(dirname -- "$0")/_/h"\nnpx x\n', ".husky/_/h": "", "node_modules/x/y": ""},
            [".husky/_/h", "node_modules"],
        ),
        (
            ".husky/_",
            {
                ".husky/_/pre-commit": '. "$(dirname "$0")/h"',
                ".husky/_/h": "",
                ".husky/pre-commit": "npx lint\n",
                "node_modules/lint/x": "",
            },
            [".husky/_/h", ".husky/_/pre-commit", "node_modules"],
        ),
        # hooks that all worktrees share
        (
            None,
            {
                ".git/hooks/pre-commit": f'{SHELL}"${{0%/*}}/helper" && ./tools/check --fast',
                ".git/hooks/helper": "",
                "tools/check": "",
            },
            ["tools/check"],
        ),
        (
            None,
            {".git/hooks/pre-commit": f"{SHELL}exec .venv/bin/python -m ruff check", ".venv/bin/python": ""},
            [".venv"],
        ),
        (
            None,
            {
                ".git/hooks/pre-commit": f'{SHELL}sh -c "grep x y; node dev/lint.js --config=dev/lint.json"',
                "dev/lint.js": "",
                "dev/lint.json": "",
            },
            ["dev/lint.js", "dev/lint.json"],
        ),
        (
            None,
            {
                ".git/hooks/pre-commit": '#!/usr/bin/env python3\nimport os\nos.execvp("sh", ["sh", "dev/x.sh"])\n',
                "dev/x.sh": "",
            },
            ["dev/x.sh"],
        ),
        (
            None,
            {
                ".git/hooks/pre-commit": LEFTHOOK,
                "lefthook.yml": "pre-commit:\n  jobs:\n    - run: npx eslint\n",
                "node_modules/eslint/x": "",
            },
            ["node_modules"],
        ),
        # what a comment names, what lies elsewhere, and a hook that does not run
        (
            None,
            {
                ".git/hooks/pre-commit": LEFTHOOK,
                "lefthook.yml": "pre-commit:\n  jobs:\n    - run: make lint\n",
                "node_modules/eslint/x": "",
            },
            [],
        ),
        (None, {".git/hooks/pre-commit": f"{SHELL}# ./a/b\n/bin/sh -c : /nowhere/a/b", "a/b": ""}, []),
        (None, {".git/hooks/pre-commit.sample": "a/b", ".git/hooks/pre-push": f"{SHELL}./a/b", "a/b": ""}, []),
        (None, {".git/hooks/pre-commit": f"#!/bin/sh\n\0\x01 ./a/b {'x' * 300} ./{'y' * 300}", "a/b": ""}, ["a/b"]),
        ("/nowhere", {".git/hooks/pre-commit": f"{SHELL}./a/b", "a/b": ""}, []),
    ],
)
def test_the_files_that_a_hook_runs_and_reads_are_found(
    repo: Path, hooks_path: str | None, files: dict[str, str], needed: list[str]
) -> None:
    write(repo, files)
    if hooks_path is not None:
        git(repo, "config", "core.hooksPath", hooks_path)
    tracked = {".husky/pre-commit", "lefthook.yml"}
    assert sorted({need.path for need in hook_files.find_needs(Git(repo))} - tracked) == needed


def find_gaps(repo: Path, about: str) -> list[Finding]:
    return [finding for finding in doctor(repo).findings if finding.about == about and finding.hint]


def type_command(repo: Path, command: str) -> None:
    with chdir(repo):
        app.run_liza(shlex.split(command)[1:])


@pytest.mark.campaign
def test_a_hook_runs_in_worktrees_after_the_named_command(repo: Path) -> None:
    write(repo, {".husky/pre-commit": '. "$(dirname "$0")/_/husky.sh"\n', ".husky/_/husky.sh": "", ".env": "KEY=1\n"})
    write(repo, {".husky/_/.gitignore": "*\n", ".gitignore": ".env\n"})
    commit_all(repo, "hooks")
    git(repo, "config", "core.hooksPath", HUSKY)
    (before,) = find_gaps(repo, "hooks")
    assert before.hint == 'liza init "…" --copy .env --copy .husky/_'
    facts: list[tuple[str, str]] = []
    init(repo, InitOptions("g", no_test=True), lambda *fact: facts.append(fact))
    command = """liza config set sandbox_copy '[".env", ".husky/_"]'"""
    text = "git hook pre-commit needs .husky/_/husky.sh, which no worktree has"
    assert dict(facts)["hooks"] == f"{text}: {command}"
    assert [(finding.text, finding.hint) for finding in find_gaps(repo, "hooks")] == [(text, command)]
    type_command(repo, command)
    assert find_gaps(repo, "hooks") + find_gaps(repo, "files") == []


@pytest.mark.campaign
def test_files_that_the_set_up_makes_are_no_gap(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text("node_modules\nown\n")
    write(
        repo, {".git/hooks/pre-commit": f"{SHELL}npx lint\n./own/check\n", "node_modules/lint/x": "", "own/check": ""}
    )
    facts: list[tuple[str, str]] = []
    init(
        repo, InitOptions("g", test="true", no_proof=True, setup="mkdir node_modules"), lambda *fact: facts.append(fact)
    )
    copying = """liza config set sandbox_copy '["own"]'"""
    gaps = [text for name, text in facts if name == "hooks"]
    assert gaps == [f"git hook pre-commit needs own/check, which no worktree has: {copying}"]
    assert find_gaps(repo, "hooks") == [], "without a worktree, the doctor does not know what the set-up makes"
    crew = find_crew(repo)
    crew.worktrees.detach("coder-1", git(repo, "rev-parse", "HEAD"), "coder-1.1")
    (crew.paths.slot("coder-1") / "node_modules").mkdir()
    slot_setup.mark_setup_done(repo, crew.worktrees.slot_git("coder-1"), crew.board.read().config)
    assert [finding.hint for finding in find_gaps(repo, "hooks")] == [copying]


def test_a_set_up_is_proposed_and_never_replaces_one(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text("node_modules\n")
    write(repo, {".git/hooks/pre-commit": f"{SHELL}npx lint\n", "node_modules/lint/x": "", "package.json": "{}"})
    facts: list[tuple[str, str]] = []
    init(repo, InitOptions("g", test="true", no_proof=True, setup="true"), lambda *fact: facts.append(fact))
    hint = "liza config set sandbox_setup 'true && npm install --no-package-lock'"
    assert dict(facts)["hooks"] == f"git hook pre-commit needs node_modules, which no worktree has: {hint}"


@pytest.mark.parametrize("is_installed", [False, True])
def test_the_pre_commit_hook_is_found_where_git_looks(repo: Path, is_installed: bool) -> None:
    (repo / ".pre-commit-config.yaml").write_text("repos: []\n")
    if is_installed:
        write(repo, {"hooks/pre-commit": SHELL})
        git(repo, "config", "core.hooksPath", str(repo / "hooks"))
    assert [finding.hint for finding in find_gaps(repo, "hooks")] == ([] if is_installed else ["pre-commit install"])


IGNORED = "/config/*\n/secrets/\n.env*\n*.local\nnode_modules\nlink\n"
FILES = (
    "config/a.yml", "config/b.yml", "config/c.yml", "secrets/k", "secrets/d/k", "api/x/.env", "s.local", "x[1].local",
    ":(top)y", "notes.txt", "node_modules/a/b",
)  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("patterns", "copied", "refused"),
    [
        ("# settings\r\n\r\nconfig/*.yml\r\n!config/c.yml\r\n", ["config/a.yml", "config/b.yml"], []),
        ("/secrets/\n**/.env\n", ["api/x/.env", "secrets"], []),
        ("secrets/d\n", ["secrets/d/k"], []),
        ("*.local\nmissing.txt\nREADME.md\n", ["s.local", "x[1].local"], []),
        ("s.local\nnotes.txt\n:(top)y\n", ["s.local"], [":(top)y", "notes.txt"]),
        ("node_modules/\nlink\n", [], ["link", "node_modules"]),
        ("\ufeffs.local\n", ["s.local"], []),
        (
            "*\n!*.local\n!node_modules\n!link\n!.*\n",
            ["api/x/.env", "config", "secrets"],
            [":(top)y", "node_modules", "notes.txt"],
        ),
        ("", [], []),
        (None, [], []),
    ],
)
def test_ignored_files_that_worktreeinclude_names_are_copied(
    repo: Path, patterns: str | None, copied: list[str], refused: list[str]
) -> None:
    write(repo, dict.fromkeys(FILES, "x\n") | {".gitignore": IGNORED})
    (repo / "link").symlink_to(repo.parent)
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-q", "-m", "ignore")
    if patterns is None:
        (repo / local_files.INCLUDE_FILE).mkdir()
    else:
        (repo / local_files.INCLUDE_FILE).write_text(patterns, newline="")
    included = local_files.find_included(Git(repo))
    assert (list(included.ignored), [text.partition(": ")[0] for text in included.refused]) == (copied, refused)


def test_a_later_change_to_worktreeinclude_needs_a_person(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text("*.local\n")
    write(repo, {"x[1].local": "1\n", "later.local": "2\n", local_files.INCLUDE_FILE: "x\\[1\\].local\n"})
    git(repo, "add", local_files.INCLUDE_FILE)
    git(repo, "commit", "-q", "-m", "include")
    assert find_gaps(repo, "files") == [], "init will copy it"
    facts: list[tuple[str, str]] = []
    init(repo, InitOptions("g", no_test=True), lambda *fact: facts.append(fact))
    assert dict(facts)["files"] == "x[1].local: copied into each worktree, as .worktreeinclude says"
    assert find_gaps(repo, "files") == []
    crew = find_crew(repo)
    assert crew.board.read().config.sandbox_copy == ("x[[]1].local",)
    (repo / local_files.INCLUDE_FILE).write_text("*.local\n")
    assert crew.board.read().config.sandbox_copy == ("x[[]1].local",)
    (gap,) = find_gaps(repo, "files")
    type_command(repo, gap.hint)
    assert find_gaps(repo, "files") == []
    assert crew.board.read().config.sandbox_copy == ("x[[]1].local", "later.local")
