"""How a command ends when its output cannot be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import variant

FULL = ["stdout", "stderr"]


@pytest.mark.parametrize(
    ("word", "full_streams", "code"),
    [("nope", ["stderr"], 2), ("nope", FULL, 2), variant("--help", ["stdout"], 5), variant("--help", FULL, 5)],
)
def test_the_exit_code_is_correct_when_no_disk_takes_output(word: str, full_streams: list[str], code: int) -> None:
    with Path("/dev/full").open("wb") as full:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | dict.fromkeys(full_streams, full)
        process = subprocess.run([sys.executable, "-m", "liza", word], check=False, timeout=60, **streams)
    assert process.returncode == code
