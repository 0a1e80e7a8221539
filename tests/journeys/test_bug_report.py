"""`liza bug-report`: one file, without secrets and without what a planted link leads to."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.journeys.crews import BIN, Crew

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


NOTIFY = """\
  notify:
    exec: |
      curl -d 'it''s done' \\\\
        -u ann:sesame-open-up ntfy.sh/topic
"""


def contents(path: str) -> dict[str, str]:
    with tarfile.open(path) as tar:
        files = {member.name.removeprefix("liza-bug-report/"): tar.extractfile(member) for member in tar}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.mark.campaign
def test_a_report_has_what_a_developer_needs_and_no_secret(crew: Crew, tmp_path: Path) -> None:
    crew.add("task-1", description=f"use {TOKEN}")
    coder = crew.script("coder", f'echo "my token is {TOKEN}"\nliza block "no address" --ask "Which?"\n')
    agent = crew.agent("coder-1", coder)
    crew.wait_status("task-1", "BLOCKED")
    assert agent.stop() == 0
    crew.configure(notify={"exec": 'curl -d "x" -u ann:pass ntfy.sh/topic'})
    secret = tmp_path / "secret.txt"
    secret.write_text("of the person\n")
    (crew.paths.logs / "planted.log").symlink_to(secret)
    report = crew.json("bug-report")
    assert Path(report["path"]).parent == crew.paths.liza
    files = contents(report["path"])
    assert set(files) == {row["name"] for row in report["files"]}
    assert {"versions.txt", "doctor.txt", "config.json", "state.yaml", "log.yaml"} <= set(files)
    assert "liza " in files["versions.txt"]
    assert "git version" in files["versions.txt"]
    assert "task-1" in files["state.yaml"]
    assert "my token is [redacted" in files["runs/coder-1.1/output.log"]
    assert "of the person" not in str(files)
    assert TOKEN not in str(files)
    assert "ann:pass" not in str(files)
    board = re.sub(r"  notify:.*\n(    .*\n)*", NOTIFY, crew.paths.state.read_text())
    crew.paths.state.write_text(board)
    assert "ann:sesame" in crew.paths.state.read_text()
    assert "sesame" not in str(contents(crew.json("bug-report", "--output", tmp_path / "lines")["path"]))
    target = tmp_path / "report.tar.gz"
    shown = crew.liza("bug-report", "--output", target)
    assert "Nothing was sent" in shown
    assert "state.yaml" in shown
    assert "exists already" in crew.liza("bug-report", "--output", target, code=1)
    assert "cannot be written" in crew.liza("bug-report", "--output", tmp_path / "no" / "f", code=5)
    # No file may grow, as on a full disk.
    limited = f'ulimit -f 0; trap "" XFSZ; exec "{BIN}/liza" bug-report --output "{tmp_path}/half"'
    failed = subprocess.run(["sh", "-c", limited], cwd=crew.root, capture_output=True, text=True, check=False)
    assert "half cannot be written" in failed.stderr
    assert not (tmp_path / "half").exists()
    crew.paths.state.write_text("not: [a board\n")
    assert "not available" in contents(crew.json("bug-report", "--output", tmp_path / "broken")["path"])["config.json"]
