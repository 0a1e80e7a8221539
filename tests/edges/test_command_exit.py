"""How a short command ends: without the tear-down of the interpreter, and with everything that others rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from liza.cli.command_table import COMMAND_MODULES, LONG_COMMANDS

FULL = ["stdout", "stderr"]
ENDING = """
import atexit, gc, sys
from liza.cli import entry_points
def command(words):
    sys.stdout.write("x" * {size})
    sys.stderr.write("collects\\n" if gc.isenabled() else "")
    return {code}
entry_points.run_command = command
sys.argv = ["liza", "{word}"]
atexit.register(lambda: print("at exit", file=sys.stderr))
entry_points.liza()
"""


def end(word: str = "status", size: int = 1, code: int = 0, **streams: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """A process that ends as ``liza word`` does, after a command that left this output in the buffer of stdout."""
    code_text = ENDING.format(size=size, code=code, word=word)
    return subprocess.Popen(
        [sys.executable, "-c", code_text], **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    )


@pytest.mark.parametrize("code", [0, 3])
def test_all_output_is_written_and_what_is_registered_for_the_exit_is_called(code: int) -> None:
    process = end(size=1 << 20, code=code)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, len(out), err) == (code, 1 << 20, b"at exit\n")


def test_a_disk_that_is_full_at_the_exit_is_reported_with_an_exit_code() -> None:
    with Path("/dev/full").open("wb") as full:
        process = end(stdout=full)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 120
    assert b"No space left on device" in err


def test_a_reader_that_is_gone_at_the_exit_is_reported_with_an_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = end(stdout=writer)
    os.close(writer)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 120
    assert b"Broken pipe" in err


@pytest.mark.parametrize(
    ("word", "full_streams", "code"),
    [("nope", ["stderr"], 2), ("nope", FULL, 2), ("--help", ["stdout"], 5), ("--help", FULL, 5)],
)
def test_the_exit_code_is_that_of_the_error_also_if_no_disk_takes_its_text(
    word: str, full_streams: list[str], code: int
) -> None:
    with Path("/dev/full").open("wb") as full:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | dict.fromkeys(full_streams, full)
        process = subprocess.run([sys.executable, "-m", "liza", word], check=False, timeout=60, **streams)
    assert process.returncode == code


@pytest.mark.parametrize("word", sorted(LONG_COMMANDS))
def test_a_command_that_runs_long_collects_its_garbage(word: str) -> None:
    assert word in COMMAND_MODULES
    process = end(word)
    assert process.communicate(timeout=60) == (b"x", b"collects\nat exit\n")
