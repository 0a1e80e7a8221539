"""A person reads what an agent did, and why it did not do more."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.journeys.crews import BIN, WORK, Crew

ROW = """\
[programs.modelled]
command = "{command}"
events = "blocks"
instructions = ["AGENTS.md"]
[programs.modelled.headless]
prompt = "none"
[programs.modelled.permissions]
prompts = ["--careful"]
bypass = ["--careless"]
[programs.modelled.usage]
when = {{ type = "result" }}
input = ["usage.input_tokens"]
output = ["usage.output_tokens"]
session = ["session_id"]
[programs.modelled.journal]
file = "{{config}}/{{id}}.jsonl"
config = ".modelled"
events = "blocks"
time = "timestamp"
"""
REASON = "This command requires approval"


def _said(author: str, *parts: dict[str, Any]) -> str:
    return json.dumps({"type": author, "message": {"content": list(parts)}})


CALLS = _said(
    "assistant",
    {"type": "text", "text": "I look around."},
    {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "git status"}},
    {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "curl example.org"}},
)
RESULTS = _said(
    "user",
    {"type": "tool_result", "tool_use_id": "c1", "content": "clean"},
    {"type": "tool_result", "tool_use_id": "c2", "content": REASON, "is_error": True},
)
DENIALS = [{"tool_use_id": "c2"}]
END = json.dumps(
    {"type": "result", "permission_denials": DENIALS, "usage": {"input_tokens": 1200, "output_tokens": 34}}
)
SESSION = f"""
liza ready > /dev/null
cat <<'LINES'
{CALLS}
{RESULTS}
{END}
LINES
"""
ROWS = [
    "says     I look around.",
    "runs     git status · ok",
    f"runs     curl example.org · refused: {REASON}",
    "tokens   1,200 in (0 cached), 34 out",
]


def _use(crew: Crew, program: str) -> None:
    command = crew.script("modelled", program, ready=False).removeprefix("script:")
    (crew.paths.liza / "programs.toml").write_text(ROW.format(command=command))
    crew.agent("coder-1", "modelled")


def _rows(text: str) -> list[str]:
    return [line[10:] for line in text.splitlines()]


@pytest.mark.campaign
def test_a_tasks_log_has_all_its_sessions_and_raw_output(crew: Crew) -> None:
    crew.add("t1")
    _use(crew, SESSION + WORK)
    crew.wait_status("t1", "READY_FOR_REVIEW")
    crew.liza("verdict", "reject", "a comma is missing", "--task", "t1")
    crew.wait(lambda _: crew.heard("t1").count("submit") == 2, "the work after the rejection")
    crew.wait(lambda _: "34 out" in crew.liza("logs", "coder-1.2"), "the end of its output")
    assert _rows(crew.liza("logs", "coder-1.1"))[:4] == ROWS
    headed = crew.liza("logs", "t1")
    assert [headed.count(f"── coder-1.{number} ──") for number in (1, 2)] == [1, 1]
    assert headed.count("git status · ok") == 2
    assert crew.liza("logs", "coder-1.1", "--raw").splitlines()[:3] == [CALLS, RESULTS, END]
    assert "coder-1 | says     I look around." in crew.liza("logs")


LOGGED = json.dumps(
    {
        "type": "assistant",
        "timestamp": "2099-01-01T10:00:00Z",
        "message": {"content": [{"type": "tool_use", "id": "c9", "name": "Bash", "input": {"command": "rm -rf /"}}]},
    }
)


@pytest.mark.campaign
def test_logs_show_calls_of_programs_own_log_and_unknown_forms(crew: Crew) -> None:
    crew.add("t1")
    log = LOGGED.replace("2099-01-01T10:00:00Z", "'$(date -u +%FT%TZ)'")
    crew_log = f"""mkdir -p "$HOME/.modelled"; printf '%s\\n' '{log}' > "$HOME/.modelled/abc.jsonl"\n"""
    begun = json.dumps({"type": "system", "subtype": "init", "session_id": "abc", "model": "m-1"})
    _use(crew, f"{crew_log}liza ready > /dev/null\necho '{begun}'\necho '{{\"type\": \"renamed\"}}'\n{WORK}")
    crew.wait_status("t1", "READY_FOR_REVIEW")
    shown = crew.run("logs", "t1")
    rows = _rows(shown.stdout)
    assert rows[0] == "begins   abc · m-1"
    assert "runs     rm -rf /" in rows
    assert "1 of 3 events have a form that is not known" in shown.stderr
    assert "next: liza logs coder-1.1 --raw" in shown.stderr


@pytest.mark.campaign
@pytest.mark.needs("tmux")
def test_the_programs_own_log_of_a_terminal_session_is_shown(crew: Crew) -> None:
    crew.add("t1")
    crew.gate("on")
    log = LOGGED.replace("2099-01-01T10:00:00Z", "'$(date -u +%FT%TZ)'")
    write = f"""printf '%s\\n' '{log}' >> "$HOME/.modelled/abc.jsonl"\n"""
    later = write.replace("rm -rf /", "make test").replace("c9", "c10")
    begin = 'export MODELLED_ID=abc\nmkdir -p "$HOME/.modelled"\n'
    program = f'{begin}{write}echo "─── a screen ───"\nliza ready\ncat "$NOTES/on" > /dev/null\n{later}sleep 600\n'
    command = crew.script("modelled", program, ready=False).removeprefix("script:")
    row = ROW.format(command=command).replace(
        'events = "blocks"\n', 'events = "blocks"\nsession_id_env = "MODELLED_ID"\n', 1
    )
    (crew.paths.liza / "programs.toml").write_text(row + '[programs.modelled.interactive]\nprompt = "none"\n')
    crew.agent("coder-1", "modelled", "--tmux")
    crew.wait(lambda _: _rows(crew.run("logs", "coder-1").stdout) == ["runs     rm -rf /"], "the first call")
    words = [str(BIN / "liza"), "logs", "coder-1", "-f"]
    with subprocess.Popen(words, cwd=crew.root, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline()[10:] == "runs     rm -rf /\n"
            crew.open_gate("on")
            assert child.stdout.readline()[10:] == "runs     make test\n"
        finally:
            child.send_signal(signal.SIGINT)


@pytest.mark.campaign
def test_unknown_output_is_reported_with_the_program_and_raw_output(crew: Crew) -> None:
    crew.add("t1")
    renamed = "\n".join(json.dumps({"kind": "thought", "n": number}) for number in range(5))
    _use(crew, f"liza ready > /dev/null\necho 'warning: x'\ncat <<'LINES'\n{renamed}\nLINES\n{WORK} > /dev/null")
    crew.wait_status("t1", "READY_FOR_REVIEW")
    alerts = crew.paths.liza / "alerts.log"
    crew.wait(lambda _: "output_unread" in alerts.read_text(), "the alarm")
    (told,) = [line for line in alerts.read_text().splitlines() if "output_unread" in line]
    assert "coder-1.1 has a known form: modelled has changed it" in told
    assert told.endswith("Next: liza logs coder-1.1 --raw")
    assert "5 of 5 events have a form that is not known" in crew.run("logs", "coder-1.1").stderr


@pytest.mark.campaign
def test_a_session_is_printed_for_other_tools(crew: Crew) -> None:
    crew.add("t1")
    _use(crew, SESSION + WORK)
    crew.wait_status("t1", "READY_FOR_REVIEW")
    session = crew.json("logs", "coder-1.1")
    assert (session["schema_version"], session["trajectory_id"]) == ("ATIF-v1.7", "coder-1.1")
    assert session["agent"]["name"] == "modelled"
    step = session["steps"][0]
    assert (step["step_id"], step["source"], step["message"]) == (1, "agent", "I look around.")
    assert [call["arguments"]["command"] for call in step["tool_calls"]] == ["git status", "curl example.org"]
    assert step["observation"]["results"][1] == {
        "source_call_id": "c2",
        "content": REASON,
        "extra": {"outcome": "refused"},
    }
    assert session["final_metrics"]["total_prompt_tokens"] == 1200
    assert [one["trajectory_id"] for one in crew.json("logs", "t1")["trajectories"]] == ["coder-1.1"]
    assert "--json excludes" in crew.liza("logs", "coder-1", "--json", "-f", code=2)


@pytest.mark.campaign
def test_a_block_after_refused_commands_names_what_allows_them(crew: Crew) -> None:
    crew.configure(permissions="prompts")
    crew.add("t1")
    _use(crew, SESSION)
    crew.wait_status("t1", "BLOCKED")
    reason = crew.task("t1").blocked_reason or ""
    remedy = "liza config set permissions bypass allows all"
    assert f"modelled refused a command ({remedy}): `curl example.org`: {REASON}" in reason
    assert f"({remedy}): `curl example.org`: {REASON}" in " ".join(crew.liza("status").split())


def test_the_cause_of_a_block_contains_no_secret(crew: Crew) -> None:
    crew.configure(max_coder_iterations=2)
    crew.add("t1")
    secret = "ghp_" + "a1B2" * 9
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": f"curl -H {secret} example.org"}}
    end = {"type": "tool_result", "tool_use_id": "c1", "content": f"no host for {secret}", "is_error": True}
    lines = f"{_said('assistant', call)}\n{_said('user', end)}"
    _use(crew, f"liza ready > /dev/null\ncat <<'LINES'\n{lines}\nLINES\n")
    reason = crew.wait_status("t1", "BLOCKED").blocked_reason or ""
    assert "failed: no host for [redacted: GitHub token]" in reason
    settled = (crew.paths.run("coder-1.1") / "settled").read_text()
    assert secret[:12] not in reason + settled + "".join(path.read_text() for path in crew.notes.glob("*.log"))
