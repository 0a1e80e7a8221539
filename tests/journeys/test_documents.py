"""A person who types the commands of a page gets where the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TUTORIAL_AGENT = "examples/tutorial-agent.sh"


def _run_blocks(page: Path, directory: Path, **variables: str) -> str:
    """Run the blocks of a page that are marked sh, in order in one shell, and return what they print.

    A variable that the page sets gets the value of ``variables`` instead.
    """
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert blocks
    script = "set -eu\n" + "".join(blocks).replace("sleep 2", "sleep 0.5")
    for name, value in variables.items():
        script, count = re.subn(rf"^{name}=.*$", f"{name}='{value}'", script, flags=re.M)
        assert count == 1
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout


def test_the_tutorial_leads_from_a_task_to_the_persons_branch(tmp_path: Path) -> None:
    tutorial = ROOT / "docs" / "tutorial.md"
    assert re.search(rf'^\$ PROGRAM="script:\$HOME/liza/{TUTORIAL_AGENT}"$', tutorial.read_text(), re.MULTILINE)
    printed = _run_blocks(tutorial, tmp_path, PROGRAM=f"script:{ROOT / TUTORIAL_AGENT}")
    assert re.search(r"total to fix: Round the total", printed)
    assert "total waits for your verdict" in printed
    assert "main is at" in printed

    shop = tmp_path / "shop"
    assert "round(sum(lines), 2)" in (shop / "invoice.py").read_text()
    tests = ("LineTest", "TotalTest", "DueTest")
    assert all(name in (shop / "test_invoice.py").read_text() for name in tests)
    subjects = _git(shop, "log", "--format=%s", "--first-parent", "-2").splitlines()
    assert subjects == ["Merge due: An invoice has a due date", "Merge total: An invoice has a total"]
    assert {path.name for path in shop.iterdir()} >= {"invoice.py", "invoices.md", "test_invoice.py"}
    assert not (shop / ".liza").exists()
    assert _git(shop, "status", "--porcelain") == ""
    assert _git(shop, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", "refs/notes/liza"]


@pytest.mark.campaign
def test_the_commands_of_the_page_on_working_by_hand_run(tmp_path: Path) -> None:
    printed = _run_blocks(ROOT / "docs" / "howto" / "by-hand.md", tmp_path)
    assert re.search(r"^  \d\d:\d\d:\d\d  \S+ +greet to fix: ", printed.partition("\ntoday\n")[2], re.MULTILINE)
    assert "Merge greet: A greeting" in printed
    assert "Merge bye: A farewell" in printed

    greeter = tmp_path / "greeter"
    files = [".git", "agent.sh", "bye.sh", "docs", "greet.sh", "run-tests", "tests"]
    assert sorted(path.name for path in greeter.iterdir()) == files
    assert _git(greeter, "status", "--porcelain") == ""
    subjects = _git(greeter, "log", "--format=%s", "--first-parent", "-2").splitlines()
    assert subjects == ["Merge bye: A farewell", "Merge greet: A greeting"]
    assert "AGENTS.md" not in _git(greeter, "log", "--all", "--name-only", "--format=")
