"""The program and the model of each role: named, passed on, shown, remembered, and refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.crews import APPROVE, BIN, WORK, Crew, begun, started

ROW = """\
[programs.{name}]
command = "{name}"
model = ["--model", "{{model}}"]
{more}
[programs.{name}.headless]
prompt = "none"
[programs.{name}.interactive]
prompt = "none"
[programs.{name}.resume]
style = "flag"
id = ["--go-on-with", "{{id}}"]
[programs.{name}.usage]
session = ["session"]
[[programs.{name}.failures]]
kind = "model"
match = '^\\{{"type":"failed","no such model":"(?P<words>[^"]*)'
[programs.{name}.acp]
model_args = ["--model", "{{model}}"]
"""
AGENT = f"""\
echo "$LIZA_RUN $*" >> "$NOTES/argv"
case "$LIZA_RUN" in
coder-*)
{WORK};;
*)
{APPROVE};;
esac
"""
REFUSES = """\
case "$*" in *nosuch*) echo '{"type":"failed","no such model":"try sonnet"}'; exit 1;; esac
"""


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """A crew on a machine where nothing is installed but what ``install`` adds."""
    programs = tmp_path / "bin"
    programs.mkdir()
    git = Path(shutil.which("git") or "git").parent
    monkeypatch.setenv("PATH", f"{programs}:{BIN}:{git}:/usr/bin:/bin")
    with started(tmp_path) as made:
        yield made


def install(crew: Crew, name: str, text: str = AGENT, more: str = "", ready: bool = True) -> Path:
    """Install a program with this name, which takes a model, in the user's table."""
    path = crew.notes.parent / "bin" / name
    made = Path(crew.script(f"{name}.sh", text, ready).removeprefix("script:"))
    made.rename(path)
    rows = Path(os.environ["HOME"]) / ".config" / "liza" / "programs.toml"
    rows.parent.mkdir(parents=True, exist_ok=True)
    before = rows.read_text() if rows.exists() else ""
    rows.write_text(before + ROW.format(name=name, more=more))
    return path


def argv(crew: Crew) -> dict[str, str]:
    """The arguments of each session."""
    lines = (crew.notes / "argv").read_text().splitlines()
    return {run: words for run, _, words in (line.partition(" ") for line in lines)}


def lines_of(shown: str) -> str:
    return " ".join(shown.split())


def test_each_role_runs_its_model_and_every_view_shows_it(crew: Crew) -> None:
    install(crew, "alpha")
    install(crew, "beta")
    crew.add("task-1")
    words = ("--program", "coder=alpha@sonnet", "--program", "reviewer=beta@org/big:7b", "--exit-when-done")
    shown = lines_of(crew.liza("up", "--planners", "0", *words))
    assert "coder: alpha, model sonnet (--program)" in shown
    assert "reviewer: beta, model org/big:7b (--program)" in shown
    chosen = {"coder": "alpha@sonnet", "code-reviewer": "beta@org/big:7b"}
    assert crew.json("config", "get", "programs")["value"] == chosen, "for a bare start"
    assert crew.status("task-1") == "MERGED"
    assert argv(crew) == {"coder-1.1": "--model sonnet", "code-reviewer-1.1": "--model org/big:7b"}
    agents = {row["id"]: (row["program"], row["model"]) for row in crew.json("status")["agents"]}
    assert agents == {
        "coder-1": ("alpha@sonnet", "sonnet"),
        "code-reviewer-1": ("beta@org/big:7b", "org/big:7b"),
    }
    assert "alpha@sonnet" in crew.liza("agents")
    assert "model  " in crew.liza("agents", "coder-1")
    assert crew.json("agents", "coder-1")["model"] == "sonnet"
    assert crew.json("metrics")["by_model"].keys() == {"sonnet", "org/big:7b"}
    assert crew.json("metrics")["by_program"].keys() == {"alpha@sonnet", "beta@org/big:7b"}


@pytest.mark.campaign
def test_a_bare_start_uses_the_last_choice(crew: Crew) -> None:
    install(crew, "alpha")
    install(crew, "beta")
    bare = crew.liza("start", "The first", code=5)
    assert "no program is chosen" in bare
    assert "alpha and beta are" in bare
    crew.liza("up", "-d", "--planners", "0", "--coders", "0", "--program", "alpha@one", "--program", "reviewer=beta")
    crew.liza("down")
    assert crew.json("config", "get", "programs")["value"] == {"default": "alpha@one", "code-reviewer": "beta"}
    shown = lines_of(crew.liza("start", "The first"))
    assert "coder: alpha, model one (config.programs.default)" in shown
    assert "reviewer: beta (config.programs.code-reviewer)" in shown
    assert argv(crew)["coder-1.1"] == "--model one"


@pytest.mark.campaign
def test_a_choice_of_start_or_a_setting_replaces_the_last(crew: Crew) -> None:
    install(crew, "alpha")
    install(crew, "beta")
    crew.add("task-1")
    assert "no program is chosen" in crew.liza("up", "--planners", "0", "--exit-when-done", code=5)
    crew.liza("up", "--planners", "0", "--exit-when-done", "--program", "alpha@one", "--program", "reviewer=beta")
    crew.liza("start", "Another one", "--model", "two")
    assert (argv(crew)["coder-1.2"], argv(crew)["code-reviewer-1.2"]) == ("--model two", "--model two")
    refused = crew.liza("start", "A third", "--model", "x", "--program", "alpha@y", code=2)
    assert "--program alpha@y names a model, and so does --model" in refused
    crew.liza("config", "set", "programs.coder", "beta@three")
    crew.liza("start", "A fourth")
    assert argv(crew)["coder-1.3"] == "--model three"


@pytest.mark.campaign
def test_the_one_installed_program_is_taken_and_a_gone_one_named(crew: Crew) -> None:
    alpha = install(crew, "alpha")
    crew.add("task-1")
    shown = lines_of(crew.liza("up", "--planners", "0", "--exit-when-done"))
    assert "alpha (the only one installed)" in shown
    assert crew.status("task-1") == "MERGED"
    crew.liza("config", "set", "programs.default", "alpha")
    install(crew, "beta")
    alpha.unlink()
    gone = crew.liza("up", code=5)
    assert "installed: beta" in gone
    assert "liza up --program beta" in gone
    assert "liza up --program beta" not in crew.liza("start", "Another one", code=5)
    assert crew.state().task("another-one") is None


@pytest.mark.campaign
def test_an_unknown_model_ends_the_crew_with_one_alarm(crew: Crew) -> None:
    install(crew, "alpha", REFUSES + AGENT)
    crew.add("task-1")
    up = crew.run("up", "--planners", "0", "--program", "alpha@nosuch")
    assert up.returncode == 5, up.stdout + up.stderr
    step = "liza up --planners 0 --program alpha@MODEL"
    assert lines_of(up.stdout).endswith(f"all stopped. alpha has no model nosuch: try sonnet; next: {step}")
    (alarm,) = [one for one in crew.json("status")["alerts"] if one["kind"] in ("model_refused", "supervisor_left")]
    assert (alarm["kind"], alarm["next"]) == ("model_refused", step)
    assert alarm["message"].startswith("alpha has no model nosuch: try sonnet")
    task = crew.task("task-1")
    assert (task.failed_by, task.idle_sessions, crew.heard("task-1").count("unusable")) == ((), 0, 1)
    crew.liza("up", "--planners", "0", "--exit-when-done", "--program", "alpha@sonnet")
    assert crew.status("task-1") == "MERGED"
    assert not [one for one in crew.json("status")["alerts"] if one["kind"] == "model_refused"]


@pytest.mark.campaign
def test_a_refused_model_stops_no_agent_with_another_model(crew: Crew) -> None:
    install(crew, "alpha", REFUSES + AGENT)
    crew.add("task-1")
    crew.liza("up", "-d", "--planners", "0", "--program", "coder=alpha@nosuch", "--program", "reviewer=alpha@good")
    crew.wait(lambda _: "model_refused" in crew.liza("status", "--json"), "the alarm")
    (alarm,) = [one for one in crew.json("status")["alerts"] if one["kind"] == "model_refused"]
    assert "coder=alpha@MODEL" in alarm["next"]
    crew.wait_supervised("code-reviewer-1")
    crew.liza("up", "-d", "--planners", "0", "--program", "coder=alpha@good")
    crew.wait_status("task-1", "MERGED")
    crew.liza("down")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("up", "--program", "script@x"), "takes no model"),
        (("up", "--program", "coder=alpha@"), "names no model after @"),
        (("config", "set", "programs.coder", "script@x"), "takes no model"),
        (("config", "set", "programs.codr", "alpha"), "is no role and no agent"),
        (("config", "set", "programs", "alpha"), "liza config set programs.default alpha"),
        (("start", "x", "--model", "m", "--program", "script:true"), "takes no model"),
        (("run", "script@x"), "takes no model"),
    ],
)
def test_a_model_that_cannot_be_passed_is_a_usage_error(crew: Crew, words: tuple[str, ...], says: str) -> None:
    install(crew, "alpha")
    assert says in crew.prepare(*words, code=2)


@pytest.mark.campaign
def test_start_beside_a_running_crew_needs_no_program(crew: Crew) -> None:
    install(crew, "alpha")
    install(crew, "beta")
    crew.liza("up", "-d", "--planners", "0", "--program", crew.script("agent", AGENT, ready=False))
    shown = lines_of(crew.liza("start", "Another one"))
    assert "the crew runs already" in shown
    crew.wait_status("another-one", "MERGED")
    crew.liza("down")
    crew.liza("config", "set", "programs.default", "gemini")
    crew.liza("up", "-d", "--planners", "0", "--program", "beta")
    assert "its next start" in lines_of(crew.liza("start", "A third", "--program", "alpha@m"))
    assert crew.json("config", "get", "programs")["value"] == {"default": "alpha@m"}
    crew.liza("down")


def test_init_refuses_a_program_that_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = begun(tmp_path)
    for program, code, says in (
        ("", 2, "the program is empty"),
        ("script:./no.sh", 5, "is missing"),
        ("gemini", 5, "is not a command on PATH"),
        ("script", 2, "needs a command"),
        ("script@x", 2, "takes no model"),
    ):
        refused = crew.run("init", "A goal", "--no-test", "--program", program)
        assert (refused.returncode, says in refused.stderr) == (code, True), refused.stderr
        assert f"--program {program}\n" not in refused.stderr
        assert "./agent.sh" not in refused.stderr
        assert not crew.paths.liza.exists()
    monkeypatch.setenv("PATH", os.environ["PATH"])
    assert "claude for all roles" not in crew.liza("init", "A goal", "--no-test")


def test_run_by_hand_passes_the_model(crew: Crew) -> None:
    install(crew, "alpha", 'echo "$@" > "$NOTES/by-hand"\n', ready=False)
    crew.liza("run", "alpha@sonnet", "--", "--more")
    assert (crew.notes / "by-hand").read_text() == "--model sonnet --more\n"
