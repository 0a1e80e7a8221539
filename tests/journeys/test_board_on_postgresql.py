"""A crew whose board is in PostgreSQL, as two people use it from two clones, with the installed commands."""

from __future__ import annotations

import getpass
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from liza.crew.crew import Crew as LizaCrew
from liza.crew.crew import find_crew
from tests.conftest import git, until
from tests.journeys.crews import APPROVE, BIN, Crew
from tests.journeys.mcp_programs import Connection, Program, commit, make_worktree
from tests.postgresql import PostgreSQL

GOAL = "Customers can pay by invoice"
PLAIN = ("--no-test", "--confinement", "off", "--program", "script:true")


class Clone(Crew):
    """A clone of the project, and what a person does there."""

    @property
    def address(self) -> str:
        """The text of board.toml."""
        return self.paths.board_address.read_text()

    def tell(self, *words: str | Path) -> dict[str, Any]:
        """What a command answers with --json."""
        answer: dict[str, Any] = json.loads(self.liza(*words, "--json"))
        return answer

    def opened(self) -> LizaCrew:
        """The crew as this process opens it."""
        return find_crew(self.root)

    def refuse(self, *words: str | Path, code: int = 1) -> str:
        """What a command that is refused prints, in this process."""
        return self.prepare(*words, code=code)


def make_clone(remote: Path, name: str) -> Clone:
    """Clone the project."""
    root, notes = remote.parent / name / "shop", remote.parent / name / "notes"
    notes.mkdir(parents=True)
    git(root.parent, "clone", "-q", str(remote), str(root))
    return Clone(root, notes)


@pytest.fixture
def stopped(postgresql: PostgreSQL) -> Iterator[Callable[[], None]]:
    """Stops the server; it runs again after the test."""
    yield postgresql.stop
    if not postgresql.is_running:
        postgresql.start()


@pytest.fixture
def ann(remote: Path, url: str) -> Iterator[Clone]:
    """The clone in which Ann creates the crew."""
    clone = make_clone(remote, "ann")
    clone.prepare("init", GOAL, "--board", url, "--host", "h1", *PLAIN)
    yield clone
    clone.clean()


@pytest.fixture
def bob(ann: Clone, remote: Path, url: str) -> Iterator[Clone]:
    """The clone in which Bob joins the crew."""
    clone = make_clone(remote, "bob")
    clone.prepare("join", url, "--host", "h2")
    yield clone
    clone.clean()


@pytest.fixture
def editor(tmp_path: Path) -> Path:
    """An editor that replaces OLD by NEW in the board, after MEANWHILE was typed in another clone: it is given these
    in variables."""
    path = tmp_path / "editor"
    path.write_text('#!/bin/sh\nset -e\nsh -c "$MEANWHILE" > "$1.out"\nsed -i "s/$OLD/$NEW/" "$1"\n')
    path.chmod(0o755)
    return path


# ── two clones ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_clone_sees_the_crew(ann: Clone, bob: Clone) -> None:
    ann.add("invoice-model")
    status = bob.tell("status")
    assert status["goal"]["description"] == GOAL
    assert [task["id"] for task in status["tasks"]] == ["invoice-model"]
    assert not ann.paths.state.exists()
    assert not bob.paths.state.exists()
    assert bob.tell("status")["tasks"] == ann.tell("status")["tasks"]


def test_a_question_is_answered_from_the_other_clone(ann: Clone, bob: Clone) -> None:
    there = ann.work_by_hand("invoice-model")
    ann.liza("block", "the spec does not say it", "--ask", "net or gross?", cwd=there)
    assert "net or gross?" in bob.liza("status")
    bob.liza("answer", "invoice-model", "gross")
    shown = ann.tell("task", "show", "invoice-model")
    assert "gross" in json.dumps(shown)
    assert shown["status"] != "BLOCKED"


def test_a_pause_in_one_clone_counts_in_the_other(ann: Clone, bob: Clone) -> None:
    ann.liza("pause", "the audit is today")
    signals = bob.tell("status")["signals"]
    assert "PAUSE" in json.dumps(signals)
    assert "the audit is today" in bob.liza("status")
    bob.liza("resume")
    assert ann.tell("status")["signals"] == []


def test_a_verdict_comes_from_the_other_clone(ann: Clone, bob: Clone) -> None:
    there = ann.work_by_hand("invoice-model")
    ann.liza("submit", cwd=there)
    assert "+x" in bob.liza("diff", "invoice-model")
    bob.liza("verdict", "approve", "read it", "--task", "invoice-model")
    assert ann.tell("task", "show", "invoice-model")["status"] == "APPROVED"


def test_history_is_that_of_all_clones(ann: Clone, bob: Clone) -> None:
    ann.liza("config", "set", "poll_interval", "20")
    bob.liza("note", "mind the umlauts")
    revisions = ann.tell("history", "-p")["revisions"]
    assert [row["revision"] for row in revisions] == [3, 2, 1]
    assert "mind the umlauts" in revisions[0]["patch"]
    assert "poll_interval: 20" in revisions[1]["patch"]
    assert bob.tell("history", "-p")["revisions"] == revisions


# ── work that Liza did not start ─────────────────────────────────────────────────────────────────────────────────────


def test_work_of_a_program_is_judged_on_another_host(ann: Clone, bob: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    ann.add("mail")
    worktree = make_worktree(ann, "fox")
    program = Connection(worktree, monkeypatch)
    program.call("claim_task")
    commit(ann, worktree, "mail.txt", "wrong\n")
    program.call("submit_work")
    assert "+wrong" in bob.prepare("diff", "mail")
    assert f"worktree {worktree} on the host h1" in bob.prepare("verdict", "reject", "it is wrong", "--task", "mail")
    assert program.call("claim_task")["data"]["rejected_because"] == "it is wrong"
    made = commit(ann, worktree, "mail.txt")
    program.call("submit_work")
    bob.prepare("verdict", "approve", "read it", "--task", "mail")
    assert bob.tell("merge")["merged"] == ["mail"]
    (own,) = program.call("queue_status")["yours"]
    assert (own["status"], own["commit"]) == ("MERGED", made)
    program.leave()


def test_another_host_goes_on_with_the_work_of_a_killed_program(ann: Clone, bob: Clone) -> None:
    ann.add("mail")
    worktree = make_worktree(ann, "fox")
    program = Program(worktree)
    program.call("claim_task")
    made = commit(ann, worktree, "mail.txt", "half\n")
    (worktree / "draft.txt").write_text("not committed\n")
    assert "its author goes on with it" in bob.refuse("claim", "mail", "--agent", "coder-1")
    program.kill()
    board = ann.opened().board
    until(lambda: board.read().handoff.get("mail"), "the work is handed off")
    assert "of the host h1" in board.read().handoff["mail"].summary
    until(lambda: board.read().tasks[0].status == "UNCLAIMED", "the task is free")
    bob.prepare("claim", "mail", "--agent", "coder-1")
    assert bob.git("rev-parse", "task/mail") == made


def test_a_branch_of_another_host_is_neither_gone_nor_replaced(ann: Clone, bob: Clone) -> None:
    made = {}
    for clone, text in ((ann, "right\n"), (bob, "other\n")):
        worktree = make_worktree(clone, "fox")
        clone.git("switch", "-q", "-c", "fox", cwd=worktree)
        made[clone] = commit(clone, worktree, f"{text.strip()}.txt", text)
    ann.prepare("submit", ".", cwd=ann.root.with_name("fox"))
    bob.prepare("verdict", "reject", "not yet", "--task", "fox")
    (alarm,) = [row for row in bob.tell("status")["alerts"] if row["about"] == "fox"]
    assert alarm["kind"] == "back_with_author"
    assert "worktree" in alarm["message"]
    assert "on the host h1" in alarm["message"]
    refused = bob.refuse("submit", "fox")
    assert f"fox is the branch of fox on the host h1, and {made[bob][:12]} has not its commits" in refused
    assert "next: git branch fox-h2 fox && liza submit fox-h2" in refused
    bob.git("branch", "fox-h2", "fox")
    approve = bob.script("reviewer", APPROVE)
    assert "fox-h2 is merged into integration" in bob.liza("submit", "fox-h2", "--merge", "--program", approve)
    later = commit(ann, ann.root.with_name("fox"), "right.txt", "better\n")
    assert ann.tell("submit", "fox")["commit"] == later


# ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_join_shows_the_commands_that_count_here(ann: Clone, remote: Path, url: str) -> None:
    ann.liza("config", "set", "sandbox_setup", "make ready")
    printed = make_clone(remote, "carl").liza("join", url)
    assert "sandbox_setup 'make ready'" in printed
    assert "trust each other" in printed


def test_joining_again_changes_nothing(bob: Clone, url: str) -> None:
    before = bob.address
    assert bob.tell("join", url, "--host", "h2")["result"] == "unchanged"
    assert bob.address == before
    assert bob.tell("join", url, "--host", "h3")["result"] == "changed"
    assert 'host = "h3"' in bob.address


def test_another_repository_cannot_join(ann: Clone, tmp_path: Path, url: str) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "another project")
    git(other, "remote", "add", "origin", str(ann.root))
    stranger = Clone(other, tmp_path)
    assert "works on another repository" in stranger.refuse("join", url)
    assert not stranger.paths.liza.exists()


def test_join_of_a_mistyped_crew_names_the_crews(ann: Clone, remote: Path, url: str) -> None:
    clone = make_clone(remote, "carl")
    refused = clone.refuse("join", url.replace("crew=shop", "crew=shpo"), code=5)
    assert "has no crew shpo; it has shop" in refused
    assert f"next: liza join '{url}'" in refused
    assert "next: liza init" in clone.refuse("join", url.replace("crew=shop", "crew=blog"), code=5)


def test_a_shallow_clone_learns_what_it_lacks(ann: Clone, remote: Path, url: str) -> None:
    git(ann.root, "commit", "-q", "--allow-empty", "-m", "more")
    git(ann.root, "push", "-q", "origin", "HEAD:main")
    root = remote.parent / "shallow"
    git(remote.parent, "clone", "-q", "--depth", "1", f"file://{remote}", str(root))
    assert "git fetch --unshallow origin" in Clone(root, remote.parent).refuse("join", url)


def test_a_clone_with_a_crew_of_its_own_cannot_join(ann: Clone, remote: Path, url: str) -> None:
    clone = make_clone(remote, "dora")
    clone.prepare("init", "another goal", "--no-test", "--confinement", "off")
    assert "has a crew of its own" in clone.refuse("join", url)
    assert clone.tell("status")["goal"]["description"] == "another goal"


def test_init_refuses_a_crew_that_is_there(ann: Clone, remote: Path, url: str) -> None:
    clone = make_clone(remote, "erin")
    refused = clone.refuse("init", "mine", "--board", url, "--no-test")
    assert "has a crew shop already" in refused
    assert f"liza join '{url}'" in refused
    assert not clone.paths.liza.exists()


def test_joining_a_crew_that_is_not_there_is_refused(remote: Path, url: str) -> None:
    clone = make_clone(remote, "finn")
    assert "has no crew shop" in clone.refuse("join", url, code=5)
    assert not clone.paths.liza.exists()


# ── edit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_edits_of_two_people_meet_entry_by_entry(ann: Clone, bob: Clone, editor: Path) -> None:
    ann.add("invoice-model", "invoice-mail")
    meanwhile = f"cd {ann.root} && liza task edit invoice-mail --desc 'Send it at once'"
    bob.liza("edit", EDITOR=str(editor), MEANWHILE=meanwhile, OLD="Write invoice-model", NEW="Model it")
    descriptions = {task["id"]: task["description"] for task in ann.tell("status")["tasks"]}
    assert descriptions == {"invoice-model": "Model it", "invoice-mail": "Send it at once"}


def test_an_edit_of_a_changed_entry_shows_both_texts(ann: Clone, bob: Clone, editor: Path) -> None:
    ann.add("invoice-model")
    meanwhile = f"cd {ann.root} && liza task edit invoice-model --desc 'Of Ann'"
    refused = bob.liza("edit", code=1, EDITOR=str(editor), MEANWHILE=meanwhile, OLD="Write invoice-model", NEW="Of Bob")
    assert "Of Ann" in refused
    assert "Of Bob" in refused
    kept = re.search(r"your copy is kept in (\S+)", refused)
    assert kept is not None
    assert "Of Bob" in Path(kept[1]).read_text()
    assert ann.tell("task", "show", "invoice-model")["description"] == "Of Ann"


# ── import and export ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def files(remote: Path) -> Iterator[Clone]:
    """A crew on files, with a history, an archived task and a comment, paused."""
    clone = make_clone(remote, "files")
    clone.prepare("init", GOAL, *PLAIN)
    clone.add("invoice-model", "invoice-mail")
    clone.prepare("task", "drop", "invoice-mail", "not needed")
    clone.prepare("archive", "--keep", "0")
    clone.prepare(
        "edit", EDITOR="sed -i 's/^tasks:/# My own remark.\\ntasks:/; s/^sprint:/own_key: [1,  2]\\nsprint:/'"
    )
    clone.prepare("pause", "moving")
    yield clone
    clone.clean()


def test_import_and_export_give_the_same_bytes(files: Clone, url: str, tmp_path: Path) -> None:
    before, revisions = files.paths.state.read_bytes(), files.tell("history", "--all")["revisions"]
    printed = files.liza("board", "import", "--url", url)
    assert "compared and the same" in printed
    assert not files.paths.state.exists()
    assert files.paths.state.with_name("state.yaml.before-server").read_bytes() == before
    assert files.tell("status")["signals"] != []
    assert [row["revision"] for row in files.tell("history", "--all")["revisions"]] == [
        row["revision"] for row in revisions
    ]
    copies = [tmp_path / "one", tmp_path / "two"]
    files.liza("board", "export", copies[0])
    assert (copies[0] / ".liza" / "state.yaml").read_bytes() == before
    assert "no violation" in files.liza("validate", copies[0]) or files.tell("validate", copies[0])["valid"]
    files.liza("board", "export")
    assert files.paths.state.read_bytes() == before
    assert files.tell("validate")["valid"]
    assert files.tell("task", "show", "invoice-mail")["status"] == "ABANDONED"
    files.prepare("board", "import", "--url", url)
    files.prepare("board", "export", copies[1])
    for name in ("state.yaml", "log.yaml", "PAUSE"):
        assert (copies[0] / ".liza" / name).read_bytes() == (copies[1] / ".liza" / name).read_bytes()


def test_revisions_go_on_counting_through_both_moves(files: Clone, url: str) -> None:
    start = files.tell("history", "--all")["revisions"][0]["revision"]
    files.prepare("board", "import", "--url", url)
    files.prepare("note", "from the server")
    files.prepare("board", "export")
    files.prepare("note", "from the file")
    revisions = files.tell("history", "--all")["revisions"]
    assert [row["revision"] for row in revisions[:3]] == [start + 2, start + 1, start]


def test_export_leaves_other_clones_without_a_board(files: Clone, remote: Path, url: str) -> None:
    files.prepare("board", "import", "--url", url)
    other = make_clone(remote, "other")
    other.prepare("join", url, "--host", "h2")
    files.liza("board", "export")
    assert "has no crew shop" in other.refuse("status", code=5)


def test_import_refuses_what_could_be_lost(files: Clone, url: str, database: str, postgresql: PostgreSQL) -> None:
    files.prepare("resume")
    assert "not paused" in files.refuse("board", "import", "--url", url)
    files.prepare("pause")
    board, text = str(files.paths.state), files.paths.state.read_text()
    files.prepare("lock", "--", "sed", "-i", "s/integration_command: .*/integration_command: rm -rf x/", board)
    assert "integration_command" in files.refuse("board", "import", "--url", url)
    files.prepare("lock", "--", "sh", "-c", f"cat > {board} <<'E'\n{text}E")
    files.prepare("lock", "--", "sed", "-i", "s/status: UNCLAIMED/status: CLAIMED/", board)
    assert "a rule of the board is broken" in files.refuse("board", "import", "--url", url, code=4)
    connection = postgresql.connect(database)
    assert connection.fetch_all("SELECT id FROM crew") == []
    connection.close()
    assert files.paths.state.exists()


def test_import_into_a_crew_that_is_there_is_refused(ann: Clone, files: Clone, url: str) -> None:
    assert "has a crew shop already" in files.refuse("board", "import", "--url", url)
    assert files.paths.state.exists()
    assert ann.tell("status")["tasks"] == []


# ── bad days ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_password_in_the_url_is_refused_and_shown_nowhere(remote: Path, url: str) -> None:
    clone = make_clone(remote, "gina")
    secret = url.replace("postgres@", "postgres:hunter2@")
    for words in (["join", secret], ["init", "x", "--board", secret], ["board", "migrate", secret]):
        refused = clone.refuse(*words, code=2)
        assert "PGPASSFILE" in refused
        assert "hunter2" not in refused
    assert not clone.paths.liza.exists()


def test_without_the_server_the_last_copy_is_shown_with_its_age(
    ann: Clone, bob: Clone, postgresql: PostgreSQL, stopped: Callable[[], None]
) -> None:
    ann.add("invoice-model")
    bob.liza("status")
    stopped()
    done = bob.run("status")
    assert done.returncode == 5
    assert "invoice-model" in done.stdout
    assert re.search(r"this is the board as it was read here \d+ s ago, at revision 2\n  next: ", done.stderr)
    answer = bob.run("status", "--json")
    assert answer.returncode == 5
    assert json.loads(answer.stdout)["board"]["age"] >= 0
    assert json.loads(answer.stderr)["error"]["code"] == "board-unavailable"
    for words in (["ui", "--once"], ["queue"], ["metrics"], ["metrics", "--by", "model"], ["validate"]):
        done = bob.run(*words)
        assert done.returncode == 5, done.stderr
        assert done.stdout
        assert len(re.findall(r"this is the board as it was read here \d+ s ago", done.stderr)) == 1
    assert ann.run("status").returncode == 5  # the first one in this clone
    postgresql.start()
    assert bob.tell("status")["board"]["age"] is None


def test_a_purge_without_the_server_changes_nothing(
    ann: Clone, postgresql: PostgreSQL, stopped: Callable[[], None]
) -> None:
    ann.work_by_hand("invoice-model")
    refs = git(ann.root, "for-each-ref")
    stopped()
    assert "nothing was purged" in ann.refuse("down", "--purge", code=75)
    assert git(ann.root, "for-each-ref") == refs
    postgresql.start()
    assert ann.tell("task", "show", "invoice-model")["status"] == "CLAIMED"


def test_a_change_waits_for_the_server_and_then_gives_up(
    ann: Clone, postgresql: PostgreSQL, stopped: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liza.board.postgresql.links.RETURN_LIMIT", 0.5)
    stopped()
    refused = ann.prepare("note", "hello", code=75)
    assert re.search(r"no PostgreSQL has the socket|nothing listens at", refused)
    assert "next: " in refused
    postgresql.start()
    ann.liza("note", "hello")
    assert [note.message for note in ann.opened().board.read().human_notes] == ["hello"]


def test_a_follower_hears_of_another_clone(ann: Clone, bob: Clone) -> None:
    with subprocess.Popen(
        [str(BIN / "liza"), "history", "--follow", "--json"], cwd=bob.root, stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        try:
            assert json.loads(follower.stdout.readline())["revision"] == 1
            ann.liza("note", "hello")
            assert json.loads(follower.stdout.readline())["subject"] == f"note (human:{getpass.getuser()})"
        finally:
            follower.kill()
