"""How sessions and crews end: without a word, in crashes, deaf to TERM, on a signal."""

from __future__ import annotations

import pytest

from liza.programs.session import session_process
from tests.conftest import worktree_of
from tests.journeys.crews import LIMIT, WORK, Crew


def test_two_successful_sessions_without_progress_block_the_task(crew: Crew) -> None:
    crew.add("task-1")
    supervisor = crew.agent("coder-1", crew.script("coder", 'echo "permission to write was denied"\n'))
    task = crew.wait_status("task-1", "BLOCKED")
    assert "2 sessions in a row ended without progress" in (task.blocked_reason or "")
    assert "permission to write was denied" in (task.blocked_reason or "")
    assert task.blocked_questions == ("What should the next try do differently?",)
    assert (task.failed_by, task.iteration) == (("coder-1",), 2)
    assert supervisor.stop() == 0


POISON = 'if [ "$LIZA_TASK" = poison ]; then echo "cannot import name shop" >&2; exit 3; fi\n'


@pytest.mark.campaign
def test_a_task_whose_sessions_crash_is_blocked_without_stopping_others(crew: Crew) -> None:
    crew.add("poison", "task-1", "task-2")
    supervisor = crew.agent("coder-1", crew.script("coder", POISON + WORK))
    task = crew.wait_status("poison", "BLOCKED")
    assert "5 sessions crashed" in (task.blocked_reason or "")
    assert "exit 3" in (task.blocked_reason or "")
    assert "cannot import name shop" in (task.blocked_reason or "")
    assert task.failed_by == ("coder-1",)
    # The healthy tasks came between the first crash and the second.
    claims = [event.run for event in task.history if event.event == "claim"]
    runs = [crew.task(name).run for name in ("task-1", "task-2")]
    assert [crew.status("task-1"), crew.status("task-2")] == ["READY_FOR_REVIEW"] * 2
    assert [claims[0], *runs, claims[1]] == [f"coder-1.{number}" for number in (1, 2, 3, 4)]
    assert supervisor.process.poll() is None
    assert supervisor.wait_said("poison asks").count("poison crashed") == 5
    assert "coder-1.1 crashed" not in supervisor.said()
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_tasks_that_crash_keep_no_coder_from_the_untried_ones(crew: Crew) -> None:
    crew.add("exit1-a", "exit1-b", "exit1-c", "good-1", "good-2")
    supervisor = crew.agent("coder-1", crew.script("coder", 'case "$LIZA_TASK" in exit1-*) exit 1;; esac\n' + WORK))
    runs = [crew.wait_status(name, "READY_FOR_REVIEW").run for name in ("good-1", "good-2")]
    assert runs == ["coder-1.4", "coder-1.5"]
    assert [crew.heard(name)[:3].count("crash") for name in ("exit1-a", "exit1-b", "exit1-c")] == [1, 1, 1]
    supervisor.stop()


@pytest.mark.campaign
def test_crashes_of_different_tasks_stop_the_supervisor(crew: Crew) -> None:
    crew.add("task-1", "task-2", "task-3")
    program = crew.script("coder", 'echo "cannot import name shop" >&2; exit 3\n')
    supervisor = crew.agent("coder-1", program)
    assert supervisor.wait_gone() == 1
    reason = "3 sessions of 3 tasks crashed within 5 minutes"
    assert reason in supervisor.said()
    told = crew.json("status")
    assert told["agents"][0]["why"] == f"its supervisor left: {reason}"
    step = f"liza up --planners 0 --reviewers 0 --program {program}"
    assert [one["next"] for one in told["alerts"] if one["kind"] == "supervisor_left"] == [step]
    assert crew.paths.alerts.read_text().count("supervisor_left") == 1
    assert "BLOCKED" not in [task.status for task in crew.state().tasks]


@pytest.mark.campaign
def test_another_coder_tries_a_task_that_crashed_twice(crew: Crew) -> None:
    crew.add("task-1")
    crew.gate("gate")
    wait = '[ "$LIZA_TASK" = task-2 ] || { echo "$$" > "$NOTES/at-$LIZA_RUN"; read line < "$NOTES/gate"; }\n'
    crew.agent("coder-2", crew.script("works", wait + WORK))
    crew.wait_note("at-coder-2.1")
    crew.add("task-2")
    crew.agent("coder-1", crew.script("crashes", "exit 3\n"))
    crew.wait(lambda state: "release" in [event.event for event in state.tasks[1].history], "the release of task-2")
    crew.open_gate("gate")
    task = crew.wait_status("task-2", "READY_FOR_REVIEW")
    assert (task.assigned_to, crew.heard("task-2").count("crash")) == ("coder-2", 2)


def test_closing_verb_on_unreadable_board_is_repeated_by_next_session(
    crew: Crew,
) -> None:
    crew.add("task-1")
    crew.gate("gate")
    program = crew.script(
        "coder",
        """\
        if [ "$LIZA_RUN" = coder-1.1 ]; then
          echo work > task-1.txt; git add -A; git commit -q -m work
          echo "$$" > "$NOTES/at-work"
          read line < "$NOTES/gate"
        fi
        liza submit 2> "$NOTES/refused.$LIZA_RUN"
        """,
    )
    crew.agent("coder-1", program)
    crew.wait_note("at-work")
    good = crew.paths.state.read_text()
    crew.paths.state.write_text(good.replace("tasks:", "tasks: [", 1))
    crew.open_gate("gate")
    session_process.wait_for_end(crew.paths.run("coder-1.1"), LIMIT)
    crew.paths.state.write_text(good)
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert "next: sleep 20; liza submit" in (crew.notes / "refused.coder-1.1").read_text()
    held_up = next(event for event in task.history if event.event == "held up")
    assert (held_up.run, task.run, task.iteration) == ("coder-1.1", "coder-1.2", 1)
    assert (held_up.detail or "").startswith("liza submit: .liza/state.yaml:")
    assert "crash" not in crew.heard("task-1")


def test_a_session_ignoring_term_ends_with_its_supervisor(crew: Crew) -> None:
    crew.add("task-1")
    program = crew.script(
        "coder",
        """\
        trap '' TERM INT HUP
        setsid sh -c 'trap "" TERM; echo $$ > "$0/server"; read line < "$0/gate"' "$NOTES" &
        echo half > half.txt
        while [ ! -s "$NOTES/server" ]; do sleep 0.1; done
        echo "$$" > "$NOTES/at-work"
        read line < "$NOTES/gate"
        """,
    )
    crew.gate("gate")
    supervisor = crew.agent("coder-1", program)
    crew.wait_note("at-work")
    assert supervisor.stop() == 0
    crew.wait_ended()
    task = crew.task("task-1")
    assert (task.status, task.handoff_pending, task.history[-1].event) == ("CLAIMED", True, "stop")
    assert (worktree_of(crew.root, "task-1") / "half.txt").read_text() == "half\n"


def why(crew: Crew, agent: str) -> str:
    return str(next(row["why"] for row in crew.json("status")["agents"] if row["id"] == agent))


def test_a_paused_crew_takes_nothing_new_and_ends_no_session(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    crew.gate("gate")
    program = crew.script("coder", 'echo "$$" > "$NOTES/at-$LIZA_TASK"; read line < "$NOTES/gate"\n' + WORK)
    crew.agent("coder-1", program)
    crew.wait_note("at-task-1")
    crew.liza("pause", "lunch")
    crew.open_gate("gate")
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    crew.wait(lambda state: state.agents["coder-1"].current_task is None, "coder-1 free")
    crew.agent("coder-2", program)
    crew.wait_supervised("coder-2")
    assert why(crew, "coder-1").startswith("PAUSE is set")
    assert crew.status("task-2") == "UNCLAIMED"
    crew.liza("resume")
    crew.wait_note("at-task-2")
    crew.liza("pause", "--checkpoint")
    assert crew.json("status")["signals"] == ["CHECKPOINT"]
    assert crew.status("task-2") == "CLAIMED"


def test_an_abort_file_stops_every_session_and_every_supervisor(crew: Crew) -> None:
    crew.add("task-1")
    crew.gate("gate")
    program = crew.script("coder", 'echo "$$" > "$NOTES/at-work"; read line < "$NOTES/gate"\n')
    supervisors = [crew.agent("coder-1", program), crew.agent("code-reviewer-1", program)]
    crew.wait_note("at-work")
    crew.paths.signal("ABORT").touch()
    assert [supervisor.wait_gone() for supervisor in supervisors] == [0, 0]
    crew.wait_ended()
    assert crew.task("task-1").history[-1].event == "stop"


def test_a_second_supervisor_of_an_agent_is_refused_with_pid(crew: Crew) -> None:
    program = crew.script("coder", WORK)
    first = crew.agent("coder-1", program)
    crew.wait(lambda state: "coder-1" in state.agents, "coder-1 on duty")
    revision = crew.state().revision
    second = crew.agent("coder-1", program)
    assert second.wait_gone() == 1
    assert "coder-1 has a supervisor already" in second.said()
    assert str(first.process.pid) in second.said()
    assert "next: liza agents coder-1" in second.said()
    assert crew.state().revision == revision
    assert first.process.poll() is None
