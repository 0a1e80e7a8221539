"""On ordinary projects of many kinds, no merge is called tested that a clean clone fails."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import GIT_CONFIG
from tests.real import set_ups
from tests.real.set_ups import SetUp

pytestmark = pytest.mark.real
BIN = Path(sys.executable).parent
CONFINEMENTS = pytest.mark.parametrize(
    "confinement", ["off", pytest.param("required", marks=pytest.mark.needs("bwrap"))]
)


class Project:
    """A project with a crew, a person who types, and an agent that works by hand."""

    def __init__(self, set_up: SetUp, directory: Path) -> None:
        self.set_up, self.root, self.directory = set_up, directory / "repo", directory
        self.env = set_ups.environment(directory / "home")
        self.env |= {"SHOP_SERVICE": str(directory / "service-runs"), "PATH": f"{self.env['PATH']}:{BIN}"}
        (directory / "service-runs").touch()
        (directory / "home" / ".gitconfig").write_text(GIT_CONFIG + '[protocol "file"]\n\tallow = always\n')

    def shell(self, text: str, cwd: Path | None = None, code: int | None = 0, **env: str) -> str:
        done = subprocess.run(
            ["sh", "-c", text],
            cwd=cwd or self.root,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert code is None or done.returncode == code, f"{text}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def begin(self, confinement: str) -> str:
        """Make the repository and the crew; what `liza init` printed."""
        self.root.mkdir()
        self.shell("git init -q -b main")
        for name, text in self.set_up.files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if name in self.set_up.executable else 0o644)
        if self.set_up.prepare:
            self.shell(self.set_up.prepare)
        self.shell(
            "git add -A && git commit -q -m first && echo more >> notes && git add -A && git commit -q -m second"
        )
        if self.set_up.checkout:
            self.shell(self.set_up.checkout)
        shared = ("--share", str(self.directory / self.set_up.shared)) if self.set_up.shared else ()
        words = " ".join(f"'{word}'" for word in (*self.set_up.init, *shared))
        return self.shell(f"liza init Go --confinement {confinement} {words}")

    def approved(self, task: str, **files: str) -> None:
        """A task with these files, submitted and approved."""
        self.shell(
            f"liza task add --id {task} --desc d --done w --spec notes --scope . && liza claim {task} --agent coder-1"
        )
        there = Path(json.loads(self.shell(f"liza task show {task} --json"))["directory"])
        for name, text in files.items():
            path = there / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.shell(f"git add --sparse -A && git commit -q -m {task} && liza submit", cwd=there)
        self.shell(f"liza verdict approve fine --task {task}")

    def word(self, task: str) -> str:
        """The word on the board."""
        row = json.loads(self.shell(f"liza task show {task} --json"))
        if row["status"] != "MERGED":
            return row["status"]
        if row["remarks"]:
            return f"tested, but {'; '.join(row['remarks'])}"
        return "tested" if row["tested"] else "untested"

    def clone_is_green(self, name: str) -> bool:
        """Whether a clean clone of integration passes all its tests, with fresh caches."""
        clone = self.directory / name
        self.shell(f"git clone -q -b integration {self.root} {clone}", cwd=self.directory)
        fresh = set_ups.environment(self.directory / f"home-{name}")
        (self.directory / f"home-{name}" / ".gitconfig").write_text(
            GIT_CONFIG + '[protocol "file"]\n\tallow = always\n'
        )
        done = subprocess.run(
            ["sh", "-c", self.set_up.truth], cwd=clone, env=fresh, capture_output=True, timeout=600, check=False
        )
        return done.returncode == 0


def begun(set_up: SetUp, directory: Path, confinement: str) -> tuple[Project, str]:
    """A project with a crew, and what `liza init` printed. Skips the test if a program is missing."""
    failed = set_ups.install_tools()
    assert failed is None, failed
    missing = [name for name in set_up.needs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    project = Project(set_up, directory)
    return project, project.begin(confinement)


def facts(said: str) -> str:
    """What `liza init` found out about the set-up and the tests."""
    lines = (line.strip() for line in said.splitlines())
    dull = ("branch", "worktrees", "goal", "programs", "next")
    return "   " + "\n   ".join(line for line in lines if line and not line.startswith(dull))


@CONFINEMENTS
@pytest.mark.parametrize("set_up", set_ups.SET_UPS, ids=lambda one: one.name)
def test_no_merge_is_called_tested_that_a_clean_clone_fails(set_up: SetUp, confinement: str, tmp_path: Path) -> None:
    project, said = begun(set_up, tmp_path, confinement)
    source = set_up.files[set_up.other]
    rows = []
    project.approved("good", **{set_up.other: f"{source}\n"})
    project.shell("liza merge", code=None)
    rows.append(("good", project.word("good"), project.clone_is_green("clone-1")))
    if set_up.before_merge:
        subprocess.run(["sh", "-c", set_up.before_merge], cwd=project.root, env=project.env, check=True)
    project.approved("breaks", **{set_up.source: set_up.broken})
    project.shell("liza merge breaks", code=None)
    rows.append(("breaks", project.word("breaks"), project.clone_is_green("clone-2")))
    if set_up.after:
        project.shell(set_up.after)
    if project.word("breaks") == "APPROVED":
        project.shell("liza merge breaks", code=None)
        rows.append(("breaks, afterwards", project.word("breaks"), project.clone_is_green("clone-3")))
    project.approved("hidden", **{set_up.source: set_up.broken + "\n"})
    project.approved("front", **{set_up.other: f"{source}\n\n"})
    project.shell("liza merge", code=None)
    project.shell("liza merge", code=None)
    green = project.clone_is_green("clone-4")
    rows += [("hidden", project.word("hidden"), green), ("front", project.word("front"), green)]
    print(
        f"\n{set_up.name}: "
        + " | ".join(f"{task}: {word}, clone {'green' if ok else 'RED'}" for task, word, ok in rows)
    )
    print(facts(said))
    for task, word, ok in rows:
        assert word != "tested" or ok, f"{task} is called tested, and a clean clone is red"
    assert rows[0][1].startswith(set_up.expected) or set_up.expected == "untested"


@CONFINEMENTS
@pytest.mark.parametrize("set_up", set_ups.GO_ON, ids=lambda one: one.name)
def test_a_set_up_that_changes_files_goes_on_merging(set_up: SetUp, confinement: str, tmp_path: Path) -> None:
    project, said = begun(set_up, tmp_path, confinement)
    try:
        proposed = re.findall(r"liza config set [a-z_]+ (?:'[^']*'|\S+)", said)
        for command in proposed:
            project.shell(command)
        project.approved("good", **{set_up.other: f"{set_up.files[set_up.other]}\n"})
        told = project.shell("liza merge", code=None)
        word = project.word("good")
        print(f"\n{set_up.name}: {word}; typed: {'; '.join(proposed) or 'nothing'}\n{facts(said)}")
        assert word.startswith(set_up.expected), told
    finally:
        if set_up.after:
            project.shell(set_up.after)
