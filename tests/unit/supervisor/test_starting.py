"""The command that starts a crew again: the programs that it ran, in as few words as are true."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace

from liza.model.errors import UsageError
from liza.model.model import Agent, Goal, State, Status
from liza.supervisor.start import UpOptions, parse_programs
from liza.tasks.rules.picking import first_able_coder
from liza.tasks.rules.up_command import format_up_command, restart_command_for, up_command_for
from tests.unit.boards import task

MINE, OTHER = "script:./agent.sh --fast", "codex"


def board(**programs: str | None) -> State:
    agents = {}
    for name, program in programs.items():
        agent = name.replace("_", "-")
        agents[agent] = Agent(role=agent.rpartition("-")[0], status="OFFLINE", runs=1, program=program)
    return State(version=1, revision=1, goal=Goal(id="goal", status="IN_PROGRESS"), agents=agents)


@pytest.mark.parametrize(
    ("programs", "agent", "words"),
    [
        ({}, "coder-1", "liza up"),
        ({"coder_1": None}, "coder-1", "liza up"),
        ({}, "code-reviewer-2", "liza up --reviewers 2"),
        (
            {"coder_1": MINE, "coder_2": MINE, "planner_1": MINE, "code_reviewer_1": MINE},
            "coder-2",
            f"liza up --coders 2 --program '{MINE}'",
        ),
        ({"coder_1": MINE, "code_reviewer_1": MINE}, "coder-1", f"liza up --planners 0 --program '{MINE}'"),
        ({"coder_1": MINE, "code_reviewer_1": MINE}, "planner-1", f"liza up --program '{MINE}'"),
        (
            {"coder_1": OTHER, "coder_2": MINE},
            "coder-2",
            f"--reviewers 0 --program coder-1=codex --program 'coder-2={MINE}'",
        ),
        ({"coder_1": OTHER, "coder_2": MINE}, "coder-1", "liza up --planners 0 --reviewers 0 --program codex"),
        (
            {"planner_1": OTHER, "coder_1": MINE, "coder_2": MINE},
            "coder-2",
            f"liza up --coders 2 --reviewers 0 --program planner=codex --program 'coder={MINE}'",
        ),
    ],
)
def test_a_restarted_supervisor_runs_what_its_agent_ran(
    programs: dict[str, str | None], agent: str, words: str
) -> None:
    assert up_command_for(board(**programs), agent).endswith(words)


def test_the_restart_command_gives_every_agent_its_program() -> None:
    ran = {"planner_1": OTHER, "coder_1": MINE, "coder_2": "script:A=1 ./b.sh 'two words'", "code_reviewer_1": MINE}
    words = shlex.split(up_command_for(board(**ran), "coder-2"))
    said = [words[at + 1] for at, word in enumerate(words) if word == "--program"]
    of_all, named = parse_programs(said)
    options = UpOptions(coders=2, program=of_all, programs=named)
    assert {agent: options.program_of(agent) for agent in options.agents()} == {
        name.replace("_", "-"): program for name, program in ran.items()
    }


def test_without_an_agent_in_need_the_whole_crew_is_started() -> None:
    ran = {"coder_1": MINE, "coder_2": MINE, "coder_3": None, "code_reviewer_1": MINE}
    state = board(**ran)
    assert up_command_for(state) == f"liza up --planners 0 --coders 2 --program '{MINE}'"
    assert up_command_for(state) == restart_command_for(state, ["coder-1", "coder-2", "code-reviewer-1"])
    assert up_command_for(board()) == "liza up"


def test_start_adds_a_coder_if_all_have_failed_a_task() -> None:
    state = replace(board(coder_1=MINE, code_reviewer_1=MINE), tasks=(task("t", Status.UNCLAIMED),))
    assert "--coders" not in up_command_for(state)
    failed = task("t", Status.UNCLAIMED, failed_by=("coder-1",))
    state = state.with_task(failed)
    assert up_command_for(state) == f"liza up --planners 0 --coders 2 --program '{MINE}'"
    assert (first_able_coder(failed), first_able_coder(replace(failed, failed_by=("coder-2",)))) == (2, 1)


@pytest.mark.parametrize("word", ["", "coder=", "coder-2=", "="])
def test_a_program_without_a_name_is_refused_by_that_reason(word: str) -> None:
    with pytest.raises(UsageError, match="names no program"):
        parse_programs([word])


def test_a_stopped_crew_starts_again_with_the_same_size() -> None:
    options = UpOptions(planners=0, coders=2, program=MINE, programs={"coder-2": OTHER}, terminal=True)
    assert (
        options.restart_command()
        == f"liza up --planners 0 --coders 2 --program '{MINE}' --program coder-2=codex --tmux"
    )
    ran = {"coder_1": MINE, "coder_2": OTHER, "code_reviewer_1": MINE, "planner_1": MINE}
    stopped = [agent for agent in options.agents() if agent != "planner-1"]
    again = parse_programs([f"coder-1={MINE}", "coder-2=codex", f"reviewer={MINE}"])
    shown = restart_command_for(board(**ran), stopped)
    assert shown.startswith("liza up --planners 0 --coders 2 --program 'coder-1=")
    words = shlex.split(shown)
    assert parse_programs([words[at + 1] for at, word in enumerate(words) if word == "--program"]) == again
    assert UpOptions().restart_command() == format_up_command({}, {}) == "liza up"


def test_agents_whose_sessions_had_a_terminal_get_one_again() -> None:
    state = board(coder_1=MINE, coder_2=MINE, code_reviewer_1=MINE)
    state = state.with_agent("coder-2", replace(state.agents["coder-2"], tmux=True))
    assert up_command_for(state, "coder-2") == f"liza up --planners 0 --coders 2 --program '{MINE}' --tmux"
    assert restart_command_for(state, ["coder-2"]).endswith(" --tmux")
    assert "--tmux" not in up_command_for(state, "coder-1")


def test_an_alarms_command_starts_the_agents_killed_with_its_agent() -> None:
    state = board(coder_1=MINE, coder_2=MINE, coder_3=MINE, coder_4=MINE, code_reviewer_2=MINE)
    for agent, status in {"coder-1": "WORKING", "coder-3": "IDLE", "code-reviewer-2": "REVIEWING"}.items():
        state = state.with_agent(agent, replace(state.agents[agent], status=status))
    assert up_command_for(state, "coder-1") == f"liza up --planners 0 --coders 3 --reviewers 2 --program '{MINE}'"
