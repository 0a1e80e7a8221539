"""`liza demo --native`: run a crew of the workers in `examples/worker.py`, which use the worker API alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liza.crew.crew import Crew, open_crew
from liza.crew.layout import find_texts
from liza.demo import demo_crew
from liza.model.errors import Missing, Refused
from liza.printing import columns, printing
from liza.system import installation
from liza.system.installation import liza_path

TIME_LIMIT = 120.0
"""Seconds after which the demo fails."""
STOP_LIMIT = 30.0
"""Seconds for `liza up` to stop the crew."""
_CREW = ("--planners", "0", "--coders", "2", "--reviewers", "1")


def run_native_demo(directory: Path | None) -> int:
    """Run the demo; return 0 when every task is merged, the board is valid and the tests of the merged code pass.

    Raises UsageError if the directory is not empty, Missing without git or the worker, Refused if the demo fails.
    """
    start = time.monotonic()
    worker = worker_path()
    root = demo_crew.choose_directory(directory)
    env = demo_crew.demo_environment()
    printing.print_now(f"A small shop in {root}; the agents run {worker}\n\n")
    demo_crew.create_project(root, FILES)
    program = f"script:{shlex.join([sys.executable, str(worker)])}"
    _run(["init", GOAL, "--spec", SPEC, "--program", program], root, env)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        json.dump(TASKS, file)
        file.flush()
        _run(["task", "add", "--file", file.name], root, env)
    _run_crew(root, env)
    return _report_end(open_crew(root), env, worker, time.monotonic() - start)


def worker_path() -> Path:
    """Return the path of the example. Raises Missing."""
    path = find_texts("examples") / "worker.py"
    if not path.is_file():
        raise Missing(f"{path} is missing", installation.reinstall_command())
    return path


def _run(words: list[str], root: Path, env: Mapping[str, str]) -> str:
    """Run a liza command and return what it prints. Raises Refused if it fails."""
    done = demo_crew.run_liza(words, root, env)
    if done.returncode != 0:
        raise Refused(f"liza {words[0]} exited with {done.returncode}: {done.stderr.strip()}", "liza doctor")
    return done.stdout


def _run_crew(root: Path, env: Mapping[str, str]) -> None:
    """Run `liza up`, which prints the feed, until every task is done. It is ended with this process.

    Raises Refused if it fails, or after the time limit.
    """
    words = [str(liza_path()), "up", "--exit-when-done", *_CREW]
    child = subprocess.Popen(words, cwd=root, env=dict(env), stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        with demo_crew.interrupted_by_signals():
            code = child.wait(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise Refused(f"not finished after {TIME_LIMIT:.0f} s", _status_command(root)) from None
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait(timeout=STOP_LIMIT)
    if code != 0:
        raise Refused(f"liza up exited with {code}", _status_command(root))


def _report_end(crew: Crew, env: Mapping[str, str], worker: Path, seconds: float) -> int:
    """Print the board, and what the workers reported; return 0. Raises Refused if a check fails."""
    root = crew.paths.root
    printing.print_now(f"\n{_run(['status'], root, env)}\n")
    failures = demo_crew.find_failures(crew, env)
    if failures:
        raise Refused("; ".join(failures), _status_command(root))
    state, metrics = crew.board.read(), json.loads(_run(["metrics", "--json"], root, env))
    printing.print_now(
        f"{len(state.tasks)} tasks merged in {seconds:.1f} s; `liza validate` and the tests on "
        f"{state.config.integration_branch} pass. No process of the crew is left.\n\n"
        f"The tool calls that the workers reported (liza metrics):\n{_format_tools(metrics)}\n\nLook around:\n"
    )
    rows = [
        [f"  less {shlex.quote(str(worker))}", "the worker; a model takes the place of next_step"],
        [f"  cd {shlex.quote(str(root))} && {demo_crew.liza_word()} logs", "what each worker did"],
    ]
    printing.print_now(columns.align_columns(rows))
    return 0


def _format_tools(metrics: Mapping[str, Any]) -> str:
    """Return a line for each tool: how often it was called, in how many seconds."""
    rows = [
        [f"  {name}", f"{tool['calls']} calls", f"{tool['failures']} failed", f"{tool['seconds']:.1f} s"]
        for name, tool in sorted(metrics["by_tool"].items())
    ]
    return columns.align_columns(rows)


def _status_command(root: Path) -> str:
    return f"cd {shlex.quote(str(root))} && liza status"


GOAL = "Every directory has a list of its files"
SPEC = "docs/lists.md"
DIRECTORIES = ("docs", "shop", "tests", "data")
FILES = {
    **demo_crew.FILES,
    SPEC: """\
# Every directory has a list of its files

`FILES.txt` in a directory names each other file of that directory, one path per line, sorted, from the root of the
repository. Lines that begin with # are comments.
""",
    "data/countries.csv": "code,name\nat,Austria\npt,Portugal\n",
    "data/taxes.csv": "code,percent\nat,20\npt,23\n",
    "tests/test_lists.py": """\
import pathlib
import unittest


class ListsTest(unittest.TestCase):
    def test_each_list_names_the_files_beside_it(self):
        for path in pathlib.Path().glob("*/FILES.txt"):
            with self.subTest(path):
                listed = [line for line in path.read_text().splitlines() if not line.startswith("#")]
                files = [file for file in path.parent.iterdir() if file.is_file() and file != path]
                self.assertEqual(listed, sorted(map(str, files)))
""",
}
TASKS = [
    {
        "id": f"list-{name}",
        "description": f"List the files of {name}",
        "done_when": f"{name}/FILES.txt names each other file of {name}, and the tests pass",
        "scope": f"{name}/FILES.txt",
        "spec_ref": SPEC,
    }
    for name in DIRECTORIES
]
"""The entries of the tasks, as `liza task add --file` reads them."""
