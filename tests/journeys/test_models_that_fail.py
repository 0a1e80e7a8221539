"""Programs whose model does not answer: refused, limited, in error for ever, too dear; and messages while they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import variant
from tests.journeys.crews import WORK, Crew, started

ROW = """\
[programs.modelled]
command = "{command}"
instructions = ["AGENTS.md"]
[programs.modelled.headless]
prompt = "none"
[programs.modelled.interactive]
prompt = "none"
[programs.modelled.usage]
when = {{ type = "used" }}
input = ["input"]
output = ["output"]
cost = "cost"
session = ["session"]
[programs.modelled.resume]
style = "flag"
id = ["--go-on-with", "{{id}}"]
[[programs.modelled.failures]]
kind = "login"
match = '^\\{{"type":"failed".*401'
[[programs.modelled.failures]]
kind = "quota"
match = '^\\{{"type":"failed".*again in (?P<seconds>\\d+) s'
[[programs.modelled.failures]]
kind = "server"
match = '^\\{{"type":"retry"'
retried = true
"""


def modelled(crew: Crew, text: str, ready: bool = True) -> str:
    """A program with a row of its own, which says how it tells of its model."""
    command = crew.script("modelled", text, ready).removeprefix("script:")
    (crew.paths.liza / "programs.toml").write_text(ROW.format(command=command))
    return "modelled"


def why(crew: Crew, agent: str) -> str:
    (found,) = [one for one in crew.json("status")["agents"] if one["id"] == agent]
    return str(found["why"])


@pytest.mark.campaign
def test_a_refused_login_stops_the_crew_without_costing_a_try(crew: Crew) -> None:
    crew.add("task-1")
    program = modelled(crew, 'echo \'{"type":"failed","m":"401 Unauthorized"}\'\n', ready=False)
    up = crew.run("up", "--planners", "0", "--program", program)
    assert up.returncode == 5, up.stdout + up.stderr
    told = "the model refuses the program's login"
    assert told in up.stdout + up.stderr
    assert told in why(crew, "coder-1")
    task = crew.task("task-1")
    assert (task.status.value, task.failed_by, task.idle_sessions) == ("CLAIMED", (), 0)
    assert crew.heard("task-1") == ["add", "claim", "unusable", "stop"]
    by_hand = f"cd {crew.root} && {crew.notes.parent / 'modelled'}"
    assert f"; start it by hand once, and answer it or log in: {by_hand}" in up.stdout + up.stderr
    steps = [one["next"] for one in crew.json("status")["alerts"] if one["kind"] == "supervisor_left"]
    assert steps[0] == f"{by_hand}; liza up --planners 0 --program modelled"


LOGIN = """\
[programs.modelled.login]
status = ["auth"]
missing = "not logged in"
next = "run modelled, /login"
"""


@pytest.mark.campaign
def test_a_missing_login_is_found_before_sessions_or_named_after(crew: Crew) -> None:
    program = modelled(
        crew,
        '[ "${1:-}" != auth ] || { echo "you are not logged in"; exit 1; }\n'
        'echo \'{"type":"failed","m":"401 Unauthorized"}\'\n',
        ready=False,
    )
    rows = crew.paths.liza / "programs.toml"
    rows.write_text(f'program = "{program}"\n{rows.read_text()}{LOGIN}')
    doctor = crew.run("doctor")
    assert doctor.returncode == 5
    assert [line.split(maxsplit=1)[1] for line in doctor.stdout.splitlines() if "modelled  " in line] == [
        "present",
        "not logged in → run modelled, /login",
    ]
    check = crew.run("programs", "check", program)
    assert (check.returncode, "not logged in: run modelled, /login" in check.stdout) == (1, True)
    assert "brief" not in check.stdout, "no session is spent on it"
    crew.add("task-1")
    up = crew.run("up", "--planners", "0", "--program", program)
    last = up.stdout.splitlines()[-1]
    step = f"liza up --planners 0 --program {program}"
    assert (up.returncode, last.partition(" all stopped. ")[2]) == (
        5,
        f"modelled is not logged in: run modelled, /login; then: {step}",
    )
    assert "the crew waits for you" not in up.stdout


def test_a_use_limit_is_waited_for_without_losing_a_try(crew: Crew) -> None:
    crew.add("task-1")
    program = modelled(
        crew,
        """\
        if [ ! -e "$NOTES/limited" ]; then
          echo yes > "$NOTES/limited"
          echo '{"type":"begun","session":"s-1"}'
          echo '{"type":"failed","m":"try again in 2 s"}'
          exit 1
        fi
        echo "$@" > "$NOTES/words"
        """
        + WORK,
    )
    supervisor = crew.agent("coder-1", program)
    crew.wait(lambda state: "quota" in crew.heard("task-1"), "the limit")
    told = "and it keeps task-1: a usage limit is reached"
    crew.wait(lambda _: told in why(crew, "coder-1"), "what it waits for in status")
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert task.iteration == 1
    assert crew.wait_note("words") == "--go-on-with s-1\n"
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_models_failure_is_reported_at_once_and_blames_no_agent(
    tmp_path: Path,
) -> None:
    """No look at the clock would find it: only the output that grows wakes the supervisor."""
    # The next check by the clock is later than the longest wait of the test.
    slow = {"answer_timeout": 600, "heartbeat_interval": 600, "poll_interval": 600, "hung_after": 36000}
    with started(tmp_path, **slow) as crew:
        crew.add("task-1")
        # A gate for each step: a writer that is slow to close a FIFO opens it for the next reader as well.
        for name in ("first", "second", "third"):
            crew.gate(name)
        program = modelled(
            crew,
            """\
            echo '{"type":"begun"}'
            read line < "$NOTES/first"
            echo '{"type":"retry","m":"500 Internal Server Error"}'
            read line < "$NOTES/second"
            i=0
            while [ $i -lt 9 ]; do echo '{"type":"retry","m":"500 Internal Server Error"}'; i=$((i + 1)); done
            read line < "$NOTES/third"
            """,
        )
        crew.configure(restart_after_crash=100)
        supervisor = crew.agent("coder-1", program)
        crew.wait(lambda _: crew.living() and (crew.paths.run("coder-1.1") / "output.log").exists(), "its output")
        crew.open_gate("first")
        told = "its model answers with errors: "
        crew.wait(lambda _: told in (why(crew, "coder-1") or ""), "the reason in status")
        assert "500 Internal Server Error" in why(crew, "coder-1")
        assert "modelled tries again, and without an answer the session is ended in 10 min" in why(crew, "coder-1")
        assert f"! coder-1.1: {told}" in supervisor.said()
        crew.open_gate("second")
        crew.wait(lambda _: "unanswered" in crew.heard("task-1"), "its end")
        crew.wait(lambda _: f"and it keeps task-1: {told}" in why(crew, "coder-1"), "what it waits for in status")
        task = crew.task("task-1")
        assert (task.status.value, task.iteration, task.idle_sessions, task.failed_by) == ("CLAIMED", 1, 0, ())
        assert supervisor.stop() == 0


@pytest.mark.campaign
def test_a_silent_model_is_named_and_blocks_no_task(tmp_path: Path) -> None:
    with started(tmp_path, answer_timeout=2) as crew:
        crew.add("task-1")
        program = modelled(crew, "trap 'exit 143' TERM\nwhile :; do sleep 0.1; done\n", ready=False)
        supervisor = crew.agent("coder-1", program)
        supervisor.wait_said(r"! coder-1\.1: no answer from its model for \d s; without one the session is ended in")
        crew.wait(lambda _: crew.heard("task-1").count("unanswered") == 3, "three ends")
        crew.wait(lambda _: "(3 sessions in a row)" in crew.paths.alerts.read_text(), "the alert")
        task = crew.task("task-1")
        assert (task.status.value, task.iteration, task.idle_sessions, task.failed_by) == ("CLAIMED", 1, 0, ())
        assert "crash" not in crew.heard("task-1")
        supervisor.wait_said(r"task-1 got no answer, and is tried again: no answer from its model for \d s")
        assert supervisor.stop() == 0


@pytest.mark.campaign
@pytest.mark.parametrize("said", ['{"type":"retry","m":"500"}', variant('{"type":"begun"}')])
def test_a_wait_for_a_model_does_not_count_as_hanging(tmp_path: Path, said: str) -> None:
    with started(tmp_path, ready_timeout=1, answer_timeout=3) as crew:
        crew.add("task-1")
        program = modelled(crew, f"echo '{said}'\ntrap 'exit 143' TERM\nwhile :; do sleep 0.1; done\n", ready=False)
        row = crew.paths.liza / "programs.toml"
        row.write_text(row.read_text().replace("[programs.modelled]\n", "[programs.modelled]\nanswers = '^answer'\n"))
        supervisor = crew.agent("coder-1", program)
        crew.wait(lambda _: crew.heard("task-1")[2:], "its end")
        assert crew.heard("task-1")[:3] == ["add", "claim", "unanswered"]
        assert "has not read its brief" not in supervisor.said()
        assert supervisor.stop() == 0


def test_used_up_budget_pauses_the_crew_and_names_the_command(tmp_path: Path) -> None:
    with started(tmp_path, budget={"money_per_sprint": 1.0}) as crew:
        crew.add("task-1", "task-2")
        program = modelled(crew, WORK + 'echo \'{"type":"used","input":900,"output":100,"cost":1.25}\'\n')
        supervisor = crew.agent("coder-1", program)
        crew.wait(lambda _: crew.paths.signal("PAUSE").exists(), "the pause")
        assert (
            "the sprint has used $1.25 of $1.00: raise the limit of config.budget"
            in crew.paths.signal("PAUSE").read_text()
        )
        crew.wait(
            lambda _: "budget_used  the crew is paused: the sprint has used" in crew.paths.alerts.read_text(),
            "the alert",
        )
        cost = crew.json("status")["cost"]
        assert (cost["money"], cost["tokens"], cost["sessions"]) == (1.25, 1000, 1)
        assert sorted(task.status.value for task in crew.state().tasks) == ["READY_FOR_REVIEW", "UNCLAIMED"]
        found = crew.json("metrics")
        assert found["by_agent"]["coder-1"]["tokens"] == found["by_outcome"]["finished"]["tokens"] == 1000
        assert supervisor.stop() == 0


@pytest.mark.campaign
def test_a_script_over_its_time_is_ended_and_resumed_later(
    tmp_path: Path,
) -> None:
    with started(tmp_path, budget={"seconds_per_task": 2}) as crew:
        crew.add("task-1")
        program = crew.script("agent", "trap 'exit 143' TERM\nwhile :; do sleep 0.1; done\n")
        supervisor = crew.agent("coder-1", program)
        crew.wait(lambda _: crew.json("metrics")["by_outcome"].keys() - {"living"}, "the end of the session")
        assert "\n! the crew is paused: task-1 has used " in (shown := crew.liza("status"))
        assert " of 2 seconds" in shown
        assert "\n    liza config set budget.seconds_per_task " in shown
        assert list(crew.json("metrics")["by_program"]) == [program]
        refused = crew.run("resume")
        step = "liza config set budget.seconds_per_task "
        assert (refused.returncode, step in refused.stderr) == (1, True), refused.stdout + refused.stderr
        crew.configure(budget={"seconds_per_task": 1000})
        assert "PAUSE cleared" in crew.liza("resume")
        assert supervisor.stop() == 0


def test_an_urgent_note_without_a_hook_is_in_the_brief(crew: Crew) -> None:
    crew.add("task-1")
    crew.gate("gate")
    program = modelled(
        crew,
        """\
        echo "$$" > "$NOTES/at-work"
        read line < "$NOTES/gate"
        grep -c "use the blue one" AGENTS.md > "$NOTES/found"
        liza ready --json > "$NOTES/brief"
        """
        + WORK,
    )
    supervisor = crew.agent("coder-1", program)
    crew.wait_note("at-work")
    told = crew.liza("note", "--to", "task-1", "--now", "use the blue one")
    assert "it waits in the inbox of coder-1; coder-1.1 has no terminal and no hook of its program has run" in told
    supervisor.wait_said("is in the brief now")
    crew.open_gate("gate")
    assert crew.wait_note("found") == "1\n"
    assert "use the blue one" in json.loads(crew.wait_note("brief"))["brief"]
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert crew.git("log", "-p", "task/task-1").count("use the blue one") == 0
    messages = crew.json("metrics")["messages"]
    assert (messages["escalated_to_brief"], messages["waiting"], messages["failed"]) == (1, 0, 0)
    assert supervisor.stop() == 0


@pytest.mark.parametrize("told", [True, False])
def test_a_missing_program_stops_up_without_failing_a_task(crew: Crew, told: bool) -> None:
    crew.add("task-1")
    program = modelled(crew, WORK)
    if told:
        Path(crew.notes.parent / "modelled").unlink()
    else:
        Path(crew.notes.parent / "modelled").write_text("no program\n")
    done = crew.run("up", "--planners", "0", "--reviewers", "0", "--program", program)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "modelled" in done.stdout + done.stderr
    assert crew.task("task-1").failed_by == ()
