"""What a person who works by hand is told."""

from __future__ import annotations

from tests.conftest import git
from tests.journeys.crews import Crew


def test_a_claim_names_the_due_set_up_and_the_tests(crew: Crew) -> None:
    crew.configure(sandbox_setup="touch ready", integration_command="test -f ready", sandbox_copy=[".env"])
    (crew.root / ".env").write_text("SECRET=1\n")
    crew.add("mail")
    untaken = crew.run("logs", "mail").stderr
    assert "mail is a task, and no agent has taken it yet" in untaken
    there = crew.paths.task_link("mail")
    said = crew.liza("claim", "mail", "--agent", "coder-1")
    assert f"cd {there} && touch ready; test -f ready\n" in said
    assert (there / ".env").read_text() == "SECRET=1\n", "a claim copies what a supervisor copies"
    assert "coder-1.1 printed nothing" in crew.run("logs", "mail").stderr
    assert "liza logs --since 15m" in crew.run("logs", "--since", "yesterday").stderr
    (there / "mail.txt").write_text("x\n")
    git(there, "add", "mail.txt")
    git(there, "commit", "-qm", "work")
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "good", "--task", "mail")
    crew.liza("merge", "mail")
    steps = [line for line in crew.liza("history", "mail", "--all").splitlines() if "liza" in line or "human" in line]
    assert [sum(text in line for line in steps) for text in ("candidate made", "tests passed")] == [1, 1]
    assert not [line for line in steps if "merging" in line]


def test_status_names_the_command_that_frees_a_kept_draft(crew: Crew) -> None:
    words = ("--desc", "Write", "--done", "it is there", "--scope", "mail.txt", "--spec", "README.md", "--draft")
    crew.liza("task", "add", "--id", "mail", *words)
    (told,) = (one for one in crew.json("status")["waiting"] if one["about"] == "mail")
    assert told["next"] == "liza task edit mail"
    crew.liza(*told["next"].split()[1:])
    assert crew.status("mail") == "UNCLAIMED"
