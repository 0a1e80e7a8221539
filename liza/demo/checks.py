"""What has to be true at the end of the demo, looked at from outside, as a person would."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from liza.crew.crew import Crew
from liza.demo import demo_crew
from liza.repo.runner import Git
from liza.rules.model import Status


def find_failures(crew: Crew, env: Mapping[str, str]) -> list[str]:
    """Everything that is not as it has to be, a sentence each."""
    tasks = crew.board.read().tasks
    found = [] if tasks else ["there is not one task on the board"]
    found += [f"{task.id} is {task.status}, and not MERGED" for task in tasks if task.status is not Status.MERGED]
    valid = demo_crew.run_liza(["validate"], crew.paths.root, env)
    if valid.returncode != 0:
        found.append(f"liza validate says {valid.returncode}: {(valid.stderr or valid.stdout).strip()}")
    return [*found, *_run_tests(crew, env)]


def _run_tests(crew: Crew, env: Mapping[str, str]) -> list[str]:
    """The project's tests on what stands in integration, in a directory apart."""
    config = crew.board.read().config
    command = config.integration_command
    if not command:
        return ["no test command is set"]
    with tempfile.TemporaryDirectory(prefix="liza-demo-tests-") as name:
        packed = Git(crew.paths.root).raw("archive", "--format=tar", f"refs/heads/{config.integration_branch}")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(Path(name), filter="data")
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=name,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if done.returncode == 0:
        return []
    return [f"{command} is red on {config.integration_branch}: {done.stderr.strip()[-500:]}"]
