"""The branches of tasks at a real bare origin: never over others, and never in the way of work."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from liza.git import git_remote
from liza.landing import branch_backup, remotes
from liza.landing.branch_backup import BranchPusher, push_tasks
from liza.landing.remotes import BranchPush, accept_origin, find_accepted_origin
from liza.landing.rules import push_rules, remote_failures
from liza.landing.rules.remote_failures import RemoteFailure
from liza.model.errors import LizaError
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.conftest import git, until, variant
from tests.edges.merge_crew import Merges, copied

HANGS = "#!/bin/sh\nexec sleep 600\n"


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    """A crew that pushes to an accepted bare origin; task a is submitted."""
    crew = copied(made, tmp_path)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(crew.root, "remote", "add", "origin", str(tmp_path / "origin.git"))
    accept_origin(crew.crew, f"{tmp_path}/origin.git")
    crew.configure(push="auto")
    crew.submitted(crew.claimed("a"))
    return crew


def bare(crew: Merges) -> Path:
    return crew.root.parent / "origin.git"


def hook(crew: Merges, name: str, text: str) -> None:
    path = bare(crew) / "hooks" / name
    path.write_text(text)
    path.chmod(0o755)


def at_origin(crew: Merges) -> dict[str, str]:
    """The commits of all branches of origin."""
    rows = git(bare(crew), "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads").split()
    return dict(zip(rows[::2], rows[1::2], strict=True))


def due(crew: Merges) -> tuple[str, ...]:
    if remote_failures.is_waiting(recorded(crew), crew.crew.clock.now()):
        return ()
    return push_rules.find_unpushed(crew.crew.board.read(), branch_backup.read_tips(crew.crew.git), at_rest=True)


def recorded(crew: Merges) -> RemoteFailure | None:
    return remotes.read_failure(crew.crew.paths.push_failure)


def failure(crew: Merges) -> str:
    """How ``liza push`` fails, with its command; the alarm must have both."""
    with pytest.raises(LizaError) as raised:
        push_tasks(crew.crew)
    told = crew.alarms()["push_failed"]
    assert told.startswith("no backup of branches of tasks at origin since ")
    assert told.endswith(f"→ {raised.value.hint}")
    assert raised.value.message[:60] in told
    return f"{raised.value.message} → {raised.value.hint}"


def commit_again(crew: Merges, *words: str) -> str:
    """Another commit on the branch of task a; its id."""
    there = crew.crew.paths.task_link("a").resolve()
    git(there, "commit", "-q", "--allow-empty", "-m", f"more {time.monotonic_ns()}", *words)
    return crew.tip("task/a")


def test_a_submitted_task_is_pushed_until_origin_has_it(crew: Merges) -> None:
    integration = crew.tip()
    assert due(crew) == ("a",)
    assert push_tasks(crew.crew).details["pushed"] == ["a"]
    assert at_origin(crew) == {"task/a": crew.tip("task/a")}
    assert (due(crew), push_tasks(crew.crew).result) == ((), "unchanged")
    assert "push_failed" not in crew.alarms()
    verdict(crew.crew, "approve", "fine", task_id="a")
    assert crew.merge() == ""
    assert crew.tip() != integration
    assert (due(crew), at_origin(crew)) == ((), {"task/a": crew.tip("task/a")}), "a merged branch stays at origin"


@pytest.mark.campaign
def test_a_rebased_branch_replaces_only_its_own_earlier_push(crew: Merges, tmp_path: Path) -> None:
    push_tasks(crew.crew)
    rebased = commit_again(crew, "--amend")
    push_tasks(crew.crew)
    assert at_origin(crew) == {"task/a": rebased}
    git(tmp_path, "clone", "-q", str(bare(crew)), "elsewhere", "-b", "task/a")
    git(tmp_path / "elsewhere", "commit", "-q", "--allow-empty", "-m", "by another person")
    git(tmp_path / "elsewhere", "push", "-q", "origin", "task/a")
    other = at_origin(crew)["task/a"]
    commit_again(crew)
    told = failure(crew)
    assert told.startswith(f"task/a of origin is at {other[:10]}, which others pushed: it is not overwritten")
    assert told.endswith("→ git fetch origin refs/heads/task/a && git log -3 FETCH_HEAD")
    assert at_origin(crew) == {"task/a": other}
    # A person takes that commit into the branch.
    git(crew.crew.paths.task_link("a").resolve(), "pull", "-q", "--no-rebase", "--no-edit", str(bare(crew)), "task/a")
    push_tasks(crew.crew)
    assert at_origin(crew) == {"task/a": crew.tip("task/a")}
    assert recorded(crew) is None


@pytest.mark.campaign
def test_a_remote_branch_that_moves_meanwhile_is_not_overwritten(crew: Merges) -> None:
    push_tasks(crew.crew)
    before, other = at_origin(crew)["task/a"], crew.tip("main")
    git(bare(crew), "fetch", "-q", str(crew.root), "main")
    git(bare(crew), "update-ref", "refs/heads/task/a", other)
    push = BranchPush("task/a", commit_again(crew), before)
    error = find_accepted_origin(crew.crew).push_branches([push])
    assert error is not None
    assert "the branch moved meanwhile: " in error.message
    assert "refs/heads/task/a [rejected] (stale info)" in " ".join(error.message.split())
    assert (error.hint, at_origin(crew)) == ("liza push", {"task/a": other})


@pytest.mark.campaign
def test_an_origin_that_rejects_one_branch_has_the_others(crew: Merges) -> None:
    hook(crew, "update", '#!/bin/sh\n[ "$1" != refs/heads/task/a ] || { echo no a here >&2; exit 1; }\n')
    crew.submitted(crew.claimed("b", "coder-2"))
    told = failure(crew)
    assert "it rejected the push: " in told
    assert "[remote rejected] (hook declined)" in told
    assert "remote: no a here" in told
    assert told.endswith("→ git push origin refs/heads/task/a refs/heads/task/b")
    assert at_origin(crew) == {"task/b": crew.tip("task/b")}
    assert due(crew) == (), "a delay runs"
    crew.submitted(crew.claimed("c", "coder-3"))
    assert due(crew) == ()
    hook(crew, "update", "#!/bin/sh\n")
    push_tasks(crew.crew)
    assert at_origin(crew).keys() == {"task/a", "task/b", "task/c"}
    assert "push_failed" not in crew.alarms()


@pytest.mark.campaign
def test_an_unreachable_origin_is_tried_later_and_stops_no_task(crew: Merges) -> None:
    bare(crew).rename(bare(crew).with_name("moved.git"))
    assert failure(crew).endswith("→ git ls-remote origin")
    assert failure(crew)
    record = recorded(crew)
    assert record is not None
    assert record.failures == 2
    crew.submitted(crew.claimed("b", "coder-2"))
    assert due(crew) == ()
    bare(crew).with_name("moved.git").rename(bare(crew))
    push_tasks(crew.crew)
    assert at_origin(crew).keys() == {"task/a", "task/b"}


@pytest.mark.campaign
def test_origin_that_asks_for_a_password_is_reported_at_once(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\necho "$@" >> "$0.calls"\necho "Permission denied (publickey)." >&2\nexit 255\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    git(crew.root, "remote", "set-url", "origin", "git@host.example:acme/shop.git")
    assert failure(crew).endswith("→ liza push --origin git@host.example:acme/shop.git")
    assert not (tmp_path / "bin" / "ssh.calls").exists(), "nothing is sent before a person has accepted the address"
    accept_origin(crew.crew, "git@host.example:acme/shop.git")
    assert (recorded(crew), due(crew)) == (None, ("a",))
    assert "it asks for a login" in failure(crew)
    assert "-oBatchMode=yes" in (tmp_path / "bin" / "ssh.calls").read_text()


def test_a_setting_that_an_agent_wrote_pushes_nothing(crew: Merges) -> None:
    crew.configure(push="never")
    state = crew.crew.paths.state
    state.write_text(state.read_text().replace("\nconfig:\n", "\nconfig:\n  push: auto\n"))
    assert crew.crew.board.read().config.push == "never"
    assert crew.alarms()["unconfirmed_setting"].endswith("→ liza doctor --accept push")
    pusher = BranchPusher(crew.crew, os.environ)
    pusher.look(crew.crew.board.read())
    pusher.close()
    assert at_origin(crew) == {}


@pytest.mark.campaign
def test_a_push_whose_end_is_unknown_is_the_crews_own(crew: Merges) -> None:
    push_tasks(crew.crew)
    first = commit_again(crew, "--amend")
    assert forks.run(lambda: push_tasks(crew.crew), "git.push") == -signal.SIGKILL
    assert at_origin(crew) == {"task/a": first}
    again = commit_again(crew, "--amend")
    push_tasks(crew.crew)
    assert at_origin(crew) == {"task/a": again}


@pytest.mark.campaign
def test_a_push_killed_anywhere_is_completed_by_the_next_one(crew: Merges, tmp_path: Path) -> None:
    trace, quiet, template = tmp_path / "trace", tmp_path / "said", tmp_path / "template"
    push_tasks(crew.crew)
    before, tip = at_origin(crew)["task/a"], commit_again(crew, "--amend")
    template.mkdir()
    for part in ("repo", "origin.git"):
        shutil.copytree(tmp_path / part, template / part, symlinks=True)
    assert forks.run(lambda: push_tasks(crew.crew), trace=trace, quiet=quiet) == 0, quiet.read_text()
    points = forks.passed(trace)
    killed = 0
    for point in points:
        for part in ("repo", "origin.git"):
            shutil.rmtree(tmp_path / part)
            shutil.copytree(template / part, tmp_path / part, symlinks=True)
        killed += forks.run(lambda: push_tasks(crew.crew), point, quiet=quiet) == -signal.SIGKILL
        assert at_origin(crew)["task/a"] in (before, tip), point
        push_tasks(crew.crew)
        assert at_origin(crew) == {"task/a": tip}, point
        assert recorded(crew) is None, point
    print(f"{killed} of {len(points)} points")
    assert killed >= 6


@pytest.mark.campaign
def test_a_hanging_origin_delays_no_supervisor_and_ends_with_it(crew: Merges) -> None:
    hook(crew, "pre-receive", f"#!/bin/sh\necho $$ > {bare(crew)}/hook.pid\nexec sleep 600\n")
    pusher = BranchPusher(crew.crew, os.environ)
    begun = time.monotonic()
    pusher.look(crew.crew.board.read())
    assert time.monotonic() - begun < 1, "the push runs as a child"
    until((bare(crew) / "hook.pid").exists, "a push")
    crew.submitted(crew.claimed("b", "coder-2"))
    other = BranchPusher(crew.crew, os.environ)
    other.look(crew.crew.board.read())
    assert other._child is None, "another supervisor pushes"
    hanging = Path("/proc") / (bare(crew) / "hook.pid").read_text().strip()
    pusher.close()
    until(lambda: not hanging.exists(), "the end of the hook")


@pytest.mark.parametrize("limit", [variant(1.0)])
def test_a_hanging_origin_is_given_up_after_a_time_limit(
    crew: Merges, monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    monkeypatch.setattr(git_remote, "NETWORK_LIMIT", limit)
    hook(crew, "pre-receive", HANGS)
    assert "took longer than 1 s and was killed → git ls-remote origin" in failure(crew)
    hook(crew, "pre-receive", "#!/bin/sh\n")
    push_tasks(crew.crew)
    assert at_origin(crew) == {"task/a": crew.tip("task/a")}


@pytest.mark.campaign
def test_a_supervisor_pushes_and_waits_after_a_failed_push(crew: Merges) -> None:
    def push(pusher: BranchPusher) -> None:
        pusher.look(state)
        assert pusher._child is not None
        pusher._child.wait()

    pusher, state = BranchPusher(crew.crew, {**os.environ, "LIZA_FAULT": "git.ls-remote"}), crew.crew.board.read()
    push(pusher)
    pusher.look(state)
    assert (pusher._child, at_origin(crew)) == (None, {}), "no second push at once"
    healthy = BranchPusher(crew.crew, os.environ)
    push(healthy)
    assert at_origin(crew) == {"task/a": crew.tip("task/a")}
    healthy.look(state)
    assert healthy._child is None
