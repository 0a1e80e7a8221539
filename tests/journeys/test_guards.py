"""Guards: what agents may do with their tools, by the installed commands."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from liza.guards.rules.guard_rules import DENIALS_FILE, GUARDS_FILE
from liza.model.paths import state_directory
from tests.journeys.crews import Crew

ASK = """
tool() {
  printf '{"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "%s"}}' "$1" | liza hook claude PreToolUse
}
"""


def test_denied_push_has_reason_and_the_third_is_an_alarm(crew: Crew) -> None:
    crew.gate("asked")
    crew.add("t1")
    program = crew.script(
        "agent",
        ASK
        + """
        tool 'git status' && tool 'git commit -am x' && echo "both allowed"
        for i in 1 2 3; do tool 'cd . && git push' || echo "code $?"; done
        echo asked > "$NOTES/done"
        cat "$NOTES/asked" > /dev/null
        liza exit 1 > /dev/null
        """,
    )
    crew.agent("coder-1", program)
    crew.wait_note("done")
    output = crew.run("logs", "coder-1").stdout
    assert "both allowed\n" in output
    assert output.count("code 2\n") == 3
    assert "denied 3× by the guard rule no-push" in crew.run("logs", "coder-1").stderr
    found = crew.json("status")
    assert [row["denials"] for row in found["agents"] if row["id"] == "coder-1"] == [3]
    (alert,) = [alert for alert in found["alerts"] if alert["kind"] == "guard_denials"]
    assert (alert["about"], alert["next"]) == ("coder-1", "liza logs coder-1")
    assert "no-push denied coder-1 a tool 3 times" in alert["message"]
    assert alert["kind"] not in [waiting["kind"] for waiting in found["waiting"]]
    directory = crew.paths.run("coder-1.1")
    assert len((directory / DENIALS_FILE).read_text().splitlines()) == 3
    assert json.loads((directory / GUARDS_FILE).read_text())["role"] == "coder"
    crew.open_gate("asked")


def test_guard_test_runs_nothing(crew: Crew) -> None:
    crew.configure(integration_command="make check > report")
    denied = crew.run("guard", "test", "touch x && git push -f", "--role", "coder", "--json")
    assert denied.returncode == 1
    answer = json.loads(denied.stdout)
    assert (answer["allowed"], answer["rule"]) == (False, "no-push")
    assert "liza submit" in answer["reason"]
    assert not (crew.root / "x").exists()
    assert "denied by rule no-push" in crew.run("guard", "test", "git push").stdout
    assert crew.liza("guard", "test", "make check > report", "--role", "reviewer").startswith("allowed by rule tests")
    crew.prepare("guard", "test", "echo > other", "--role", "reviewer", code=1)
    crew.prepare("guard", "test", "--path", ".liza/state.yaml", code=1)
    crew.prepare("guard", "test", "--path", "src/a.py")
    crew.prepare("guard", "test", "--path", "src/a.py", "--role", "planner", code=1)
    crew.prepare("guard", "test", "--path", "src/a.py", "--role", "planner", "--tool", "read")
    crew.prepare("guard", "test", "ls", "--role", "boss", code=2)
    crew.prepare("guard", "test", code=2)


def test_a_project_gives_rights_after_a_person_trusted_its_file(crew: Crew) -> None:
    file = crew.paths.liza / "guards.toml"
    file.write_text('[[rule]]\nname = "push-own"\nallow = true\ncommands = ["git push origin <branch> $"]\n')
    words = ("guard", "test", "git push origin task/t1", "--task", "t1")
    crew.add("t1")
    assert crew.run(*words).returncode == 1
    (alert,) = [alert for alert in crew.json("status")["alerts"] if alert["kind"] == "guards_untrusted"]
    assert "push-own" in alert["message"]
    assert alert["next"] == "liza programs trust"
    assert "agents are allowed: push-own" in crew.liza("programs", "trust")
    assert "allowed by rule push-own" in crew.liza(*words)
    assert [alert for alert in crew.json("status")["alerts"] if alert["kind"] == "guards_untrusted"] == []


def test_a_guard_file_with_an_error_starts_no_session(crew: Crew) -> None:
    (crew.paths.liza / "guards.toml").write_text('[[rule]]\nname = "a"\ntools = ["shel"]\nreason = "x"\n')
    told = crew.run("guard", "test", "ls")
    assert told.returncode == 2
    assert "guards.toml: rule 'a', tools: 'shel' is no tool" in told.stderr
    alerts = crew.json("status")["alerts"]
    (alert,) = [alert for alert in alerts if "rule 'a', tools: 'shel'" in alert["message"]]
    assert alert["next"] == told.stderr.rpartition("next: ")[2].strip()
    assert "rule 'a', tools: 'shel' is no tool" in crew.run("doctor").stdout
    crew.add("t1")
    supervisor = crew.agent("coder-1", crew.script("agent", "liza exit 1 > /dev/null"))
    supervisor.wait_said("rule 'a', tools: 'shel' is no tool")
    assert not crew.paths.run("coder-1.1").joinpath("output.log").exists()


def test_on_error_is_a_setting_only_persons_can_change(crew: Crew) -> None:
    assert crew.run("guard", "test", "echo '").returncode == 1
    crew.configure(guards={"on_error": "allow"})
    assert crew.run("guard", "test", "echo '").returncode == 0
    assert crew.run("guard", "test", "git push").returncode == 1


CORPUS = tomllib.loads((Path(__file__).parent.parent / "data" / "guard_corpus.toml").read_text(encoding="utf-8"))


def outside(root: Path, state: Path) -> dict[str, bytes]:
    """The person's files that a command without a rule might change."""
    files = [path for path in root.rglob("*") if path.is_file() and not {".git", ".liza"} & set(path.parts)]
    files += [*(root / ".git" / "hooks").iterdir(), root / ".git" / "config"]
    files += [root / ".liza" / "guards.toml", state / "trusted.json"]
    return {str(path): path.read_bytes() for path in files if path.exists()}


@pytest.mark.needs("bwrap")
def test_a_box_refuses_what_therefore_needs_no_guard_rule(confined: Crew) -> None:
    """Each command of the list runs in a box, with the paths of this crew, and changes nothing outside."""
    state = state_directory(os.environ, Path.home())
    (confined.root / "Makefile").write_text("all:\n\ttouch built\n")
    (confined.root / "package.json").write_text('{"name": "shop", "version": "1.0.0", "dependencies": {}}\n')
    commands = CORPUS["passed"]["the_box_refuses"]
    lines = ["set +e; mkdir hooks; echo x > hooks/pre-push; echo x > /tmp/x"]
    for number, command in enumerate(commands):
        text = command.replace("/home/ann/shop", str(confined.root)).replace("/var/state/ann", str(state.parent))
        (confined.notes / f"{number}.sh").write_text(text)
        lines.append(f"bash $NOTES/{number}.sh > $NOTES/{number}.out 2>&1; echo $? > $NOTES/{number}.code")
    before = outside(confined.root, state)
    confined.add("one")
    confined.agent("coder-1", confined.script("coder.sh", "\n".join([*lines, "echo > $NOTES/done", "sleep 600"])))
    confined.wait_note("done")
    assert len(list(confined.notes.glob("*.code"))) == len(commands)
    after = outside(confined.root, state)
    assert "\nx\n" not in (confined.root / ".git" / "info" / "exclude").read_text()
    assert [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)] == []
