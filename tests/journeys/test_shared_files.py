"""Two tasks on one file: who is warned, which task is taken first, what `hold` does; and no session at night."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

from liza.model.history_events import HistoryEvent
from tests.conftest import commit_all
from tests.journeys.crews import WORK, Crew, worktree_of


def commit_in(there: Path, name: str) -> None:
    commit_all(there, f"write {name}", {name: "x\n"})


def test_the_crew_warns_of_tasks_on_one_file(crew: Crew) -> None:
    crew.add("cart", scope="shop/cart.py, tests/test_cart.py")
    added = crew.run("task", "add", *words("price", "shop/"), "--json")
    step = "liza task edit price --depends cart"
    assert json.loads(added.stdout)["remarks"] == [f"price shares files with cart, shop/cart.py: {step}"]
    crew.add("mail", scope="mail.txt")
    crew.prepare("claim", "cart", "--agent", "coder-1")
    assert crew.run("claim", "--agent", "coder-2").stdout.startswith("mail claimed"), "the one without shared files"
    claimed = crew.run("claim", "price", "--agent", "coder-3")
    assert "price shares files with cart (coder-1), shop/cart.py" in claimed.stderr
    there = worktree_of(crew.root, "mail")
    commit_in(there, "mail.txt")
    commit_in(worktree_of(crew.root, "price"), "mail.txt")
    submitted = crew.run("submit", cwd=there)
    assert "mail shares files with price (coder-3), mail.txt" in submitted.stderr
    rows = {row["id"]: row for row in crew.json("status")["tasks"]}
    assert rows["price"]["overlaps"] == [
        {"task": "cart", "path": "shop/cart.py", "agent": "coder-1"},
        {"task": "mail", "path": "mail.txt", "agent": "coder-2"},
    ]
    assert "shares mail.txt with price (coder-3): Write mail" in crew.liza("status")
    assert "cart (coder-1), shop/cart.py; mail (coder-2), mail.txt" in crew.liza("task", "show", "price")


def test_work_from_outside_is_compared_with_the_tasks_in_work(crew: Crew) -> None:
    crew.add("mail")
    crew.prepare("claim", "mail", "--agent", "coder-1")
    crew.git("switch", "-q", "-c", "feature", "integration")
    commit_in(crew.root, "mail.txt")
    submitted = crew.run("submit", "feature", "--id", "letter", "--desc", "Write it")
    assert "letter shares files with mail (coder-1), mail.txt" in submitted.stderr
    crew.liza("config", "set", "overlap", "hold")
    crew.add("stamp", scope="mail.txt")
    assert crew.liza("claim", "mail", "--agent", "coder-2", code=1)
    assert "stamp: it waits for " in crew.liza("claim", "--agent", "coder-2", code=1)


def words(task: str, scope: str) -> tuple[str, ...]:
    return ("--id", task, "--desc", f"Write {task}", "--done", "it is there", "--scope", scope, "--spec", "README.md")


def test_the_command_of_a_warning_ends_it(crew: Crew) -> None:
    crew.add("cart", "price", scope="shop/cart.py")
    crew.liza("task", "edit", "price", "--depends", "cart")
    assert crew.run("task", "add", *words("mail", "mail.txt")).stderr == ""
    crew.prepare("claim", "cart", "--agent", "coder-1")
    assert [row["overlaps"] for row in crew.json("status")["tasks"]] == [[], [], []]


def test_status_names_the_command_that_frees_a_held_task(crew: Crew) -> None:
    crew.liza("config", "set", "overlap", "hold")
    crew.add("cart", "price", scope="shop/cart.py")
    crew.prepare("claim", "cart", "--agent", "coder-1")
    step = "config.overlap is hold: liza config set overlap warn"
    refused = crew.liza("claim", "--agent", "coder-2", code=1)
    assert f"price: it waits for cart: both have shop/cart.py ({step})" in refused
    shown = crew.liza("status")
    assert "waits for cart: both have shop/cart.py" in shown
    assert f"1 task waits for a task in work with the same files: {step}" in shown
    crew.liza(*step.partition(": liza ")[2].split())
    assert crew.liza("claim", "--agent", "coder-2").startswith("price claimed")


def hours(begin: int, end: int) -> str:
    """Hours from so many hours after now until so many."""
    now = datetime.now().astimezone()
    return "-".join(f"{now + timedelta(hours=count):%H:%M}" for count in (begin, end))


def test_outside_of_the_work_hours_no_session_starts(crew: Crew) -> None:
    crew.liza("config", "set", "work_hours", closed := hours(2, 4))
    crew.add("mail")
    crew.agent("coder-1", crew.script("coder", WORK))
    crew.wait(lambda state: "coder-1" in state.agents and state.agents["coder-1"].status == "IDLE", "an idle coder-1")
    step = "(config.work_hours): liza config set work_hours null"
    sentence = f"no session starts before {closed[:5]} {step}"
    assert sentence in crew.liza("status")
    assert crew.json("status")["agents"][0]["why"] == sentence
    assert crew.status("mail") == "UNCLAIMED"
    assert crew.state().agents["coder-1"].runs == 0
    assert crew.json("task", "add", *words("letter", "letter.txt"))["next"] == step.partition(": ")[2]
    crew.liza("claim", "letter", "--agent", "coder-2")  # a person's command works
    crew.liza("config", "set", "work_hours", hours(-1, 1))
    crew.wait_status("mail", "READY_FOR_REVIEW")
    assert "no session starts" not in crew.liza("status")


def test_a_crew_that_starts_outside_of_the_hours_prints_that(crew: Crew) -> None:
    crew.liza("config", "set", "work_hours", hours(2, 4))
    assert "no session starts before" in crew.liza("up", "-d", "--planners", "0", "--program", crew.script("a", WORK))
    crew.liza("down")


def test_a_session_goes_on_after_the_hours_and_the_next_one_waits(crew: Crew) -> None:
    crew.add("mail")
    crew.configure(restart_after_crash=0.1)
    fails = f'if [ "$LIZA_RUN" = coder-1.1 ]; then echo begun > "$NOTES/begun"; cat "{crew.gate("go")}"; exit 3; fi'
    crew.agent("coder-1", crew.script("coder", f"{fails}\n{WORK}"))
    crew.wait_note("begun")
    crew.liza("config", "set", "work_hours", hours(2, 4))
    assert "no session starts before" in crew.liza("status")
    assert crew.json("status")["agents"][0]["why"] is None
    crew.open_gate("go")
    crew.wait(lambda _: crew.task("mail").history[-1].event == HistoryEvent.CRASH, "the end of the session")
    crew.wait(lambda _: crew.json("status")["agents"][0]["why"] is not None, "the reason to wait")
    (row,) = crew.json("status")["agents"]
    assert (row["current_task"], row["state"]) == ("mail", "stalled")
    assert row["why"].startswith("no session starts before")
    crew.liza(*row["why"].partition(": liza ")[2].split())
    crew.wait_status("mail", "READY_FOR_REVIEW")


def test_hours_of_no_valid_form_are_refused_with_what_is_expected(crew: Crew) -> None:
    refused = crew.liza("config", "set", "work_hours", "8-20", code=2)
    assert "8-20" in refused
    assert "hours such as 08:00-20:00, or mon-fri 08:00-20:00, or null" in refused
