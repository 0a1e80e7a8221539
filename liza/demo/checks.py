"""Check the result of the demo from outside: the board, `liza validate`, and the tests on the merged code."""

from __future__ import annotations

import io
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping

from liza.crew.crew import Crew
from liza.demo import demo_crew
from liza.git.runner import Git
from liza.model.model import Status


def find_failures(crew: Crew, env: Mapping[str, str]) -> list[str]:
    """Return a sentence for each failed check; empty if the demo succeeded."""
    tasks = crew.board.read().tasks
    failures = [] if tasks else ["there are no tasks on the board"]
    failures += [f"{task.id} is {task.status}, expected MERGED" for task in tasks if task.status is not Status.MERGED]
    validation = demo_crew.run_liza(["validate"], crew.paths.root, env)
    if validation.returncode != 0:
        failures.append(
            f"liza validate exits with {validation.returncode}: {(validation.stderr or validation.stdout).strip()}"
        )
    return [*failures, *_run_tests(crew, env)]


def _run_tests(crew: Crew, env: Mapping[str, str]) -> list[str]:
    """Run the project's tests on the integration branch, in a temporary directory. Return the failure, if any."""
    config = crew.board.read().config
    command = config.integration_command
    if not command:
        return ["no test command is set"]
    with tempfile.TemporaryDirectory(prefix="liza-demo-tests-") as directory:
        # Not a tar: `TarFile.extractall` has no filter before Python 3.11.4, and wants one later.
        files = Git(crew.paths.root).raw("archive", "--format=zip", f"refs/heads/{config.integration_branch}")
        with zipfile.ZipFile(io.BytesIO(files)) as archive:
            archive.extractall(directory)
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=directory,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if done.returncode == 0:
        return []
    return [f"{command} fails on {config.integration_branch}: {done.stderr.strip()[-500:]}"]
