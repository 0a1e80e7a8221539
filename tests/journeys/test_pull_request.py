"""A pull request goes out and its red check and its review come back, are mended by the crew, and go out again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.edges.forge_stand_in import ForgeStandIn
from tests.journeys.crews import APPROVE, LIMIT, WORK, Crew, started
from tests.journeys.test_api_in_a_crew import up

SCRIPT = f"""\
liza ready > "$NOTES/brief-$LIZA_TASK-$LIZA_RUN"
case "$LIZA_RUN" in
coder-*)
    {WORK.replace(chr(10), chr(10) + "    ")};;
*)
    {APPROVE} ;;
esac
"""
URL = "https://github.com/acme/shop.git"


@pytest.mark.campaign
def test_review_comments_on_a_pull_request_are_fixed_and_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gh = ForgeStandIn(tmp_path / "bin", monkeypatch)
    origin = tmp_path / "origin.git"
    with started(tmp_path, pull_request_interval=1) as crew:
        crew.git("init", "-q", "--bare", "-b", "main", str(origin), cwd=tmp_path)
        crew.git("config", "--global", f"url.{origin}.insteadOf", URL)
        crew.git("remote", "add", "origin", URL)
        crew.git("push", "-q", "origin", "main")
        gh.follow(origin)
        crew.add("task-1")
        agents = crew.script("agent", SCRIPT, ready=False)
        process = up(crew, "--planners", "0", "--coders", "1", "--program", agents)
        crew.wait_status("task-1", "MERGED")
        assert gh.calls == []  # without a pull request nothing is asked
        crew.prepare("land", "--pr", "--origin", origin)

        tip = crew.git("rev-parse", "integration")
        gh.check("test", "FAILURE", 1, "E   assert 1 == 2\n")
        gh.comment(11, "Round it.", path="task-1.txt", line=1)
        check, comment = f"ci-ci-test-{tip[:7]}", "pr-1-discussion-r11"
        for task in (check, comment):
            crew.wait_status(task, "MERGED")
        assert "task-1.txt:1" in crew.task(comment).description
        (brief,) = crew.notes.glob(f"brief-{check}-coder-1.*")
        assert f".liza/specs/{check}.md" in brief.read_text()
        crew.wait(lambda _: f"{check}: " in printed(crew), "a line of up")

        # Otherwise `up` could read the old result as one of the commit that `land` pushes.
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
        # The forge still shows the same result and the same comment: what is mended is not pushed yet.
        waiting = crew.json("sync", "--pr")
        assert (waiting["tasks"], waiting["next"]) == ([], "liza land --pr")
        landed = crew.json("land", "--pr")
        assert landed["request"]["action"] == "updated"
        assert crew.git("rev-parse", "integration", cwd=origin) == crew.git("rev-parse", "integration") != tip
        gh.check("test", "SUCCESS", 2)
        again = crew.json("sync", "--pr")
        assert (again["result"], again["tasks"], again["checks"]) == ("unchanged", [], [])
        assert {task.id for task in crew.state().tasks} == {"task-1", check, comment}


def printed(crew: Crew) -> str:
    return (crew.notes / "up.log").read_text()
