"""schemathesis against a real server: what it answers is what its OpenAPI document says, for good and bad requests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edges.api_worker import Api, Worker, serving
from tests.journeys.crews import BIN

SHORT, LONG_RUN = 3, 300
"""Examples for each operation in a usual run, and in a campaign."""

CONFIG = """\
[parameters]
run = {run}
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 410, 422, 429]
"""
"""A run that is over (410), and rules about several values (422), are beyond what a schema can say."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as one:
        yield one


def run_schemathesis(worker: Worker, tmp_path: Path, examples: int, *selection: str) -> None:
    """All checks of all phases. The run in a path is that of the worker; in a body it is any run."""
    api = worker.api
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG.format(run=json.dumps(worker.run)))
    url = f"http://127.0.0.1:{api.port}"
    done = subprocess.run(
        [
            *(str(BIN / "schemathesis"), "--config-file", str(config), "run", f"{url}/openapi.json", "--url", url),
            *("--checks", "all", "--max-examples", str(examples), "--seed", "1", "--generation-deterministic"),
            *("--header", f"Authorization: Bearer {worker.token}", "--no-color", "--continue-on-failure", *selection),
        ],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": ""},
        capture_output=True,
        text=True,
    )
    said = "\n".join(line[:400] for line in f"{done.stdout}\n{done.stderr}\n{api.log.read_text()}".splitlines())
    assert done.returncode == 0, said
    assert "Traceback" not in api.log.read_text()
    assert api.get("/v1/health").status == 200


@pytest.mark.campaign
def test_answers_match_the_document(api: Api, tmp_path: Path) -> None:
    """Generated requests only: the other phases wait for a minute, and are a campaign."""
    run_schemathesis(api.worker("coder-1.1"), tmp_path, SHORT, "--exclude-path-regex", "stream$", "--phases", "fuzzing")


@pytest.mark.campaign
def test_the_stream_of_an_ended_run_matches_the_document(api: Api, tmp_path: Path) -> None:
    worker = api.worker("coder-2.1")
    api.open_run("coder-2.1").mark_concluded("done")
    run_schemathesis(worker, tmp_path, SHORT, "--include-path-regex", "stream$")


@pytest.mark.campaign
def test_many_answers_match_the_document(api: Api, tmp_path: Path) -> None:
    run_schemathesis(api.worker("coder-1.1"), tmp_path, LONG_RUN, "--exclude-path-regex", "stream$")
