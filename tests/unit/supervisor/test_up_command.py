"""The command that starts supervisors again: as many of each role, with the programs that they ran."""

from __future__ import annotations

import pytest

from liza.model.model import Agent, State
from liza.model.statuses import AgentStatus
from liza.model.value_classes import replace
from liza.tasks.rules.up_command import (
    format_up_command,
    next_coder,
    restart_command_for,
    start_command_for,
    up_command_for,
)
from tests.unit.boards import board


def crew(**programs: str | None) -> State:
    """Return a board with these agents; a name that ends with _off left on request, one with _tmux has a terminal."""
    agents = {}
    for name, program in programs.items():
        agent, _, mark = name.partition("__")
        agent = agent.replace("_", "-")
        status = AgentStatus.OFFLINE if mark == "off" else AgentStatus.IDLE
        agents[agent] = Agent(
            role=agent.rpartition("-")[0], status=status, program=program, tmux=True if mark == "tmux" else None
        )
    return board(agents=agents)


ONE_OF_EACH = {"planner_1": "codex", "coder_1": "codex", "code_reviewer_1": "codex"}


@pytest.mark.parametrize(
    ("programs", "named", "command"),
    [
        ({}, (), "liza up"),
        ({}, ("coder-3",), "liza up --coders 3"),
        ({"coder_1": None}, (), "liza up"),
        (ONE_OF_EACH, (), "liza up --program codex"),
        (ONE_OF_EACH, ("coder-2",), "liza up --coders 2 --program codex"),
        ({**ONE_OF_EACH, "coder_3": "codex"}, (), "liza up --coders 3 --program codex"),
        ({**ONE_OF_EACH, "coder_3__off": "codex"}, ("coder-1",), "liza up --program codex"),
        ({**ONE_OF_EACH, "coder_3__off": "codex"}, (), "liza up --coders 3 --program codex"),
        ({**ONE_OF_EACH, "coder_3": "codex"}, ("coder-1",), "liza up --coders 3 --program codex"),
        ({"coder_1": "codex"}, (), "liza up --planners 0 --reviewers 0 --program codex"),
        ({"coder_1": "codex"}, ("code-reviewer-1",), "liza up --planners 0 --program codex"),
        (
            {"planner_1": "a", "coder_1": "b", "coder_2": "b", "code_reviewer_1": "a"},
            (),
            "liza up --coders 2 --program planner=a --program coder=b --program code-reviewer=a",
        ),
        (
            {"planner_1": "a", "coder_1": "b", "coder_2": "c", "code_reviewer_1": "a"},
            (),
            "liza up --coders 2 --program planner=a --program coder-1=b --program coder-2=c --program code-reviewer=a",
        ),
        ({**ONE_OF_EACH, "coder_2__tmux": "codex"}, (), "liza up --coders 2 --program codex --tmux"),
        ({**ONE_OF_EACH, "coder_x": "codex"}, (), "liza up --program codex"),
        ({"coder_1": "script:./a b"}, (), "liza up --planners 0 --reviewers 0 --program 'script:./a b'"),
    ],
)
def test_the_crew_is_started_as_it_was(programs: dict[str, str | None], named: tuple[str, ...], command: str) -> None:
    assert up_command_for(crew(**programs), *named) == command


@pytest.mark.parametrize(
    ("agents", "command"),
    [
        (("coder-1",), "liza up --planners 0 --reviewers 0 --program b"),
        (("coder-2",), "liza up --planners 0 --coders 2 --reviewers 0 --program b"),
        (("code-reviewer-1",), "liza up --planners 0 --coders 0 --program a"),
        (
            ("coder-1", "planner-1"),
            "liza up --reviewers 0 --program planner=a --program coder=b",
        ),
    ],
)
def test_only_the_named_supervisors_are_started_again(agents: tuple[str, ...], command: str) -> None:
    state = crew(planner_1="a", coder_1="b", coder_2="b", code_reviewer_1="a")
    assert restart_command_for(state, agents) == command


@pytest.mark.parametrize(
    ("programs", "command"),
    [
        ({}, "liza up"),
        (ONE_OF_EACH, "liza up --coders 2 --program codex"),
        ({"coder_1": "codex", "coder_2": "codex"}, "liza up --planners 0 --coders 3 --reviewers 0 --program codex"),
        ({"coder_2": "codex"}, "liza up --planners 0 --coders 2 --reviewers 0 --program codex"),
        ({"coder_1": None, "coder_2": "codex"}, "liza up --planners 0 --coders 3 --reviewers 0 --program codex"),
        (
            {"coder_1": "a", "coder_2": "b", "code_reviewer_1": "a"},
            "liza up --planners 0 --coders 3 --program coder-1=a --program coder-2=b --program coder-3=b"
            " --program code-reviewer=a",
        ),
        (
            {"coder_1__tmux": "a", "coder_3__tmux": "b"},
            "liza up --planners 0 --coders 3 --reviewers 0 --program coder-1=a --program coder-3=b --program coder-2=b"
            " --tmux",
        ),
    ],
)
def test_another_coder_has_the_first_free_number(programs: dict[str, str | None], command: str) -> None:
    state = crew(**programs)
    assert up_command_for(state, next_coder(state)) == command


@pytest.mark.parametrize(
    ("counts", "programs", "terminal", "command"),
    [
        ({"planner": 1}, {}, False, "liza up"),
        ({"coder": 4, "code-reviewer": 2}, {}, True, "liza up --coders 4 --reviewers 2 --tmux"),
        ({"coder": 0}, {"": "a", "coder": "b c"}, False, "liza up --coders 0 --program a --program 'coder=b c'"),
    ],
)  # fmt: skip
def test_counts_of_one_are_left_out(
    counts: dict[str, int | str], programs: dict[str, str], terminal: bool, command: str
) -> None:
    assert format_up_command(counts, programs, terminal=terminal) == command


def test_an_agent_of_no_role_gets_no_program() -> None:
    assert up_command_for(crew(tester_1="x", coder_1="codex")) == ("liza up --planners 0 --reviewers 0 --program codex")


def test_single_agents_are_named_without_a_remembered_program() -> None:
    state = crew(coder_1="codex", coder_2="claude", code_reviewer_1="codex")
    assert start_command_for(state, ["coder-2"]) == "liza up coder-2 --program claude"
    assert start_command_for(state, ["coder-9"]) == "liza up coder-9"
    for programs in ({"coder": "codex"}, {"default": "codex"}, {"coder-1": "codex", "default": "pi"}):
        remembered = replace(state, config=replace(state.config, programs=programs))
        assert start_command_for(remembered, ["coder-1"]) == "liza up coder-1"
        assert start_command_for(remembered, ["coder-2"]) == "liza up coder-2 --program claude"
