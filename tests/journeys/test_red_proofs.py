"""What a person is told about tests that are red before any task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import commit_all, git
from tests.journeys.crews import begun

RUN_TESTS = """\
#!/bin/sh
echo "Error: Cannot find module 'mods'"
i=0; while [ $i -lt 40 ]; do echo "    at Module.load (loader.js:$i)"; i=$((i + 1)); done
exit 1
"""


def test_a_missing_module_is_named_above_a_long_report(
    tmp_path: Path,
) -> None:
    crew = begun(tmp_path)
    script = crew.root / "run-tests"
    script.write_text(RUN_TESTS)
    script.chmod(0o755)
    commit_all(crew.root, "tests", {"index.js": "module.exports = 1;\n"})
    assert "the tests need the module mods, which is not installed" in crew.liza(
        "init", "Go", "--test", "./run-tests", code=1
    )
    crew.liza("init", "Go", "--test", "./run-tests", "--accept-red")
    report = json.loads(crew.run("doctor", "--tests", "--json").stdout)
    (proof,) = [finding for finding in report["findings"] if finding["about"] == "proof"]
    log = ".liza/logs/baseline-tests.log"
    assert f"ended with exit 1: the module mods is not installed (see {log})" in proof["text"]
    assert proof["hint"] == f"less {log}"
    assert "Cannot find module 'mods'" in (crew.root / log).read_text()


@pytest.mark.campaign
def test_an_idle_crew_proves_changed_tests_again(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    for name, text in {"lib.sh": "echo 1\n", "t": '#!/bin/sh\n[ "$(sh lib.sh)" = 1 ]\n'}.items():
        (crew.root / name).write_text(text)
        (crew.root / name).chmod(0o755)
    commit_all(crew.root, "tests")
    crew.liza("init", "Go", "--test", "./t")
    there = crew.work_by_hand("a")
    (there / "t").write_text("#!/bin/sh\nsh lib.sh || true\n")
    git(there, "commit", "-q", "-a", "-m", "weaker")
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "looks ok", "--task", "a")
    crew.liza("merge", "a")
    wanted = "tests: the proof is of before t changed; it is renewed when the crew is idle: liza doctor --tests"
    assert wanted in crew.liza("status")
    supervisor = crew.agent("coder-1", crew.script("never.sh", "exit 1\n"))
    try:
        crew.wait(lambda state: state.config.proof.green_parts == ("./t",), "the proof is renewed")
        assert "nothing is merged: untested: `./t` stays green when all sources fail" in crew.liza("status")
    finally:
        supervisor.stop()
