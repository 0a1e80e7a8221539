"""Several accounts of one program: a limit changes the account, and the secret is nowhere but in the session."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from liza.usage import account_files
from tests.journeys.crews import WORK, Crew, bytes_of_files, bytes_of_history, bytes_of_processes

ROW = """\
[programs.modelled]
command = "{command}"
instructions = ["AGENTS.md"]
credential_env = "MODEL_KEY"
config_dir_env = "MODEL_HOME"
[programs.modelled.headless]
prompt = "none"
[programs.modelled.interactive]
prompt = "none"
[programs.modelled.usage]
when = {{ type = "used" }}
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
"""
KEY_A, KEY_B = "xyzzy-first-91c3b7", "xyzzy-second-5e02fa"
NOTE_KEY = 'printf %s "${MODEL_KEY-none}" | sha256sum | cut -c 1-8 >> "$NOTES/keys"\n'
LIMIT = """\
echo '{"type":"begun","session":"s-1"}'
echo '{"type":"failed","m":"try again in 3600 s"}'
exit 1
"""


def modelled(crew: Crew, text: str) -> str:
    """A program with a row of its own, which reads its key from MODEL_KEY."""
    command = crew.script("modelled", text).removeprefix("script:")
    (crew.paths.liza / "programs.toml").write_text(ROW.format(command=command))
    return "modelled"


def short_hash(key: str) -> str:
    return subprocess.run(["sha256sum"], input=key.encode(), capture_output=True, check=True).stdout.decode()[:8]


def write_accounts(text: str) -> Path:
    path = account_files.accounts_path(Path(os.environ["HOME"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def reversed_store(crew: Crew, key: str) -> list[str]:
    """A command that prints the key, as a password manager would; the key itself is in no file."""
    store = crew.notes.parent / "store"
    store.write_text(key[::-1] + "\n")
    return ["rev", str(store)]


def environments() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return found


def leaks(crew: Crew, *keys: str) -> list[str]:
    """Where one of the keys is: in a file of the crew, of HOME or of the notes, in git, or in a command line."""
    places = [
        *bytes_of_processes(),
        *bytes_of_history(crew.root),
        *bytes_of_files(crew.root, crew.paths.slots, crew.notes, Path(os.environ["HOME"])),
    ]
    assert len(places) > 50
    return [place for place, data in places if any(key.encode() in data for key in keys)]


def show(crew: Crew) -> dict[str, dict[str, object]]:
    return {row["id"]: row for row in json.loads(crew.run("programs", "accounts", "--json").stdout)["accounts"]}


TERMINAL = pytest.param(("--tmux",), marks=[pytest.mark.needs("tmux"), pytest.mark.campaign])


@pytest.mark.campaign
@pytest.mark.parametrize("options", [(), TERMINAL], ids=["headless", "terminal"])
def test_a_session_at_its_limit_is_followed_by_another_account(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    crew.add("task-1")
    crew.gate("limit")
    crew.gate("work")
    program = modelled(
        crew,
        f"""\
        {NOTE_KEY}
        if [ ! -e "$NOTES/limited" ]; then
          echo yes > "$NOTES/limited"
          read line < "$NOTES/limit"
          echo '{{"type":"begun","session":"s-1"}}'
          echo '{{"type":"failed","m":"try again in 3600 s"}}'
          exit 1
        fi
        read line < "$NOTES/work"
        echo "${{1-no}} ${{2-words}}" > "$NOTES/words"
        """
        + WORK,
    )
    command = json.dumps(reversed_store(crew, KEY_B))
    write_accounts(
        f"[accounts.modelled.first]\nvariable = 'KEY_OF_FIRST'\n[accounts.modelled.second]\ncommand = {command}\n"
    )
    # A person who has exported the key, and the key of another account under the program's own name.
    monkeypatch.setenv("KEY_OF_FIRST", KEY_A)
    monkeypatch.setenv("MODEL_KEY", "of-the-person")
    supervisor = crew.agent("coder-1", program, *options)
    crew.wait_note("keys")
    assert show(crew)["modelled/first"]["used_by"] == ["coder-1.1"]
    if not options:
        elsewhere = crew.liza("programs", "accounts", XDG_STATE_HOME=str(crew.notes / "state"))
        assert "the account of coder-1.1 is not on record at" in elsewhere
        assert "next: liza down && liza up" in elsewhere
    assert leaks(crew, KEY_A, KEY_B) == []
    crew.open_gate("limit")
    crew.wait(lambda _: show(crew)["modelled/second"]["used_by"] == ["coder-1.2"], "the second session")
    assert leaks(crew, KEY_A, KEY_B) == []
    # In the environment of the session's own processes, and of no other: neither supervisor nor terminal server.
    crew.wait(lambda _: any(KEY_B.encode() in data for data in environments()), "the second session's program")
    holders = [data for data in environments() if KEY_B.encode() in data]
    assert all(b"\0LIZA_RUN=coder-1.2\0" in b"\0" + data for data in holders)
    row = show(crew)["modelled/first"]
    assert (row["state"], row["used_by"]) == ("limited", [])
    assert "a usage limit is reached" in str(row["reason"])
    crew.open_gate("work")
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert task.iteration == 1
    # Both have the program's own directory: the conversation goes on.
    assert crew.wait_note("words") == "--go-on-with s-1\n"
    assert supervisor.stop() == 0
    assert (crew.notes / "keys").read_text().split() == [short_hash(KEY_A), short_hash(KEY_B)]
    assert leaks(crew, KEY_A, KEY_B) == []
    assert "! account modelled/first is not used until " in supervisor.said()


@pytest.mark.campaign
def test_status_names_the_end_when_all_accounts_are_limited(
    crew: Crew,
) -> None:
    crew.add("task-1")
    program = modelled(
        crew,
        'if [ ! -e "$NOTES/limited" ]; then\n  echo yes > "$NOTES/limited"\n'
        + LIMIT.replace("\n", "\n  ")
        + "\nfi\n"
        + WORK,
    )
    write_accounts("[accounts.modelled.only]\nlogin = true\n")
    supervisor = crew.agent("coder-1", program)
    told = "no account can be used: modelled/only: a usage limit is reached"

    def why() -> str:
        return " ".join(str(agent["why"]) for agent in crew.json("status")["agents"])

    crew.wait(lambda _: told in why(), "what it waits for in status")
    assert why().startswith("modelled waits until ")
    assert why().endswith(": liza programs accounts")
    crew.liza("programs", "accounts", "--clear", "modelled/only")
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_work_continues_with_another_account_after_a_refused_login(crew: Crew, tmp_path: Path) -> None:
    crew.add("task-1")
    program = modelled(
        crew,
        """\
        echo "$MODEL_HOME" >> "$NOTES/homes"
        echo "${1-no} ${2-words}" >> "$NOTES/words"
        case $MODEL_HOME in
        */refused) echo '{"type":"begun","session":"s-1"}'; echo '{"type":"failed","m":"401 Unauthorized"}'; exit 1;;
        esac
        """
        + WORK,
    )
    (tmp_path / "refused").mkdir()
    (tmp_path / "good").mkdir()
    first, second = f"config_dir = '{tmp_path}/refused'", f"config_dir = '{tmp_path}/good'"
    write_accounts(f"[accounts.modelled.a]\n{first}\n[accounts.modelled.b]\n{second}\n")
    supervisor = crew.agent("coder-1", program)
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert (task.iteration, task.failed_by) == (1, ())
    assert supervisor.stop() == 0
    assert (crew.notes / "homes").read_text().split() == [f"{tmp_path}/refused", f"{tmp_path}/good"]
    # The conversation is in the directory of the first account: the second begins a new one.
    assert (crew.notes / "words").read_text().splitlines() == ["no words", "no words"]
    again = "liza programs accounts --clear modelled/a"
    assert again in (crew.paths.liza / "alerts.log").read_text()
    assert show(crew)["modelled/a"]["state"] == "set aside"
    doctor = crew.liza("doctor")
    assert "modelled/a is set aside: the model refuses the program's login" in doctor
    assert again in doctor


@pytest.mark.campaign
def test_a_crew_without_usable_accounts_stops_for_a_person(crew: Crew) -> None:
    crew.add("task-1")
    program = modelled(crew, 'echo \'{"type":"failed","m":"401 Unauthorized"}\'\n')
    write_accounts("[accounts.modelled.only]\nlogin = true\n")
    up = crew.run("up", "--planners", "0", "--program", program)
    assert up.returncode == 5, up.stdout + up.stderr
    assert "no account of modelled can be used until a person acts: modelled/only" in up.stdout + up.stderr
    assert crew.task("task-1").failed_by == ()


def test_a_failing_secret_command_stops_no_other_account(crew: Crew) -> None:
    crew.add("task-1")
    program = modelled(crew, NOTE_KEY + WORK)
    good = json.dumps(reversed_store(crew, KEY_B))
    write_accounts(
        "[accounts.modelled.lines]\ncommand = ['printf', 'two\\nlines']\n"
        "[accounts.modelled.fails]\ncommand = 'false'\n"
        "[accounts.modelled.asks]\ncommand = ['sh', '-c', 'read key < /dev/tty']\n"
        f"[accounts.modelled.good]\ncommand = {good}\n"
    )
    supervisor = crew.agent("coder-1", program)
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert supervisor.stop() == 0
    assert (crew.notes / "keys").read_text().split() == [short_hash(KEY_B)]
    said = supervisor.said()
    assert "! account modelled/lines: command printf: 2 lines, and a secret is one line (next: " in said
    assert "! account modelled/fails: command false exited with 1" in said
    assert "! account modelled/asks: command sh exited with" in said
    checked = crew.run("programs", "accounts", "--check")
    assert checked.returncode == 1
    assert "! account modelled/fails: command false exited with 1" in checked.stdout
    assert "modelled/good" not in [
        line.split()[2].rstrip(":") for line in checked.stdout.splitlines() if line[:1] == "!"
    ]
    assert KEY_B not in checked.stdout + checked.stderr
