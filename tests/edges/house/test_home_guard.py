"""The fixture that keeps tests out of the real HOME works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOUCHES = """
import tests.conftest
from pathlib import Path

def test_touches() -> None:
    (tests.conftest.REAL_HOME / ".written").write_text("x")

def test_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / ".written").write_text("x")
    (Path.home() / ".written").write_text("x")
"""


@pytest.mark.campaign
def test_only_a_test_that_writes_into_the_real_home_fails(tmp_path: Path) -> None:
    home, temp = tmp_path / "home", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    (tmp_path / "test_touch.py").write_text(TOUCHES)
    env = {**os.environ, "HOME": str(home), "TMPDIR": str(temp), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "test_touch.py"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "RealHomeTouched" in done.stdout
    assert list(home.iterdir()) == []
