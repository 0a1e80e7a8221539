"""Somebody who follows only the README gets where it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_loop_by_hand_and_with_scripts_works_as_the_readme_types_it(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", README.read_text(), re.M | re.S)
    assert len(blocks) == 2
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = "set -eu\n" + "".join(blocks)
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^  \d\d:\d\d  \S+ +greet to fix: ", done.stdout.partition("\ntoday\n")[2], re.MULTILINE)
    assert "Merge greet: A greeting" in done.stdout
    assert "Merge bye: A farewell" in done.stdout

    greeter = tmp_path / "greeter"
    assert sorted(path.name for path in greeter.iterdir()) == [
        ".git",
        "bye.sh",
        "docs",
        "greet.sh",
        "run-tests",
        "tests",
    ]
    assert _git(greeter, "status", "--porcelain") == ""
    assert _git(greeter, "log", "--format=%s", "--first-parent", "-2").splitlines() == [
        "Merge bye: A farewell",
        "Merge greet: A greeting",
    ]
    assert "AGENTS.md" not in _git(greeter, "log", "--all", "--name-only", "--format=")


def _git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout
