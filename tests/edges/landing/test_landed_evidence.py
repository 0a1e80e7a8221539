"""Statements about landed commits: written once, signed if there is a key, and checked without trusting the notes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from liza.alarms.current_alarms import find_alarms
from liza.git import notes_ref
from liza.landing.land import land_merge, land_pr
from liza.landing.landed_evidence import render_branch, verify_branch
from liza.landing.remotes import accept_origin, find_remote
from liza.landing.sync import sync
from liza.merging.merge import merge
from liza.merging.undo import undo
from liza.model.alarm_table import Alarm, AlarmKind
from liza.recovery.doctor import doctor
from liza.recovery.recover import recover_crew
from liza.tasks.evidence import gather_evidence
from tests.campaign import forks
from tests.conftest import git
from tests.edges.forge_stand_in import ForgeStandIn
from tests.edges.merge_crew import Merges, copied
from tests.edges.several_clones import Hosts

NOTES = "refs/notes/liza"
VERDICT = "urn:liza:verdict:v1"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    return copied(made, tmp_path)


def note(root: Path, commit: str | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in git(root, "notes", "--ref", "liza", "show", str(commit)).splitlines()]


def verdict_of(crew: Merges, task: str) -> dict[str, Any]:
    (verdict,) = [
        each
        for each in note(crew.root, crew.task(task).merge_commit)
        if each["predicateType"].startswith("urn:liza:verdict")
    ]
    return verdict["predicate"]


def rewrite(crew: Merges, commit: str | None, text: str) -> None:
    """A person, or an agent outside of a box, replaces a note."""
    git(crew.root, "notes", "--ref", "liza", "add", "-f", "-m", text, str(commit))


def faults(crew: Merges, branch: str = "integration") -> list[str]:
    return list(verify_branch(crew.root, branch)["faults"])


def evidence_alarms(crew: Merges) -> list[Alarm]:
    state = crew.crew.board.read()
    found = find_alarms(crew.crew, state, gather_evidence(crew.crew, state))
    return [alarm for alarm in found if alarm.kind is AlarmKind.EVIDENCE]


def sign_with_ssh(crew: Merges, tmp_path: Path) -> Path:
    """Configure a key of the person, which this clone trusts; return it."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    kind, public, *_ = key.with_suffix(".pub").read_text().split()
    (tmp_path / "allowed").write_text(f"ann@example.com {kind} {public}\n")
    for name, value in (
        ("gpg.format", "ssh"),
        ("user.signingKey", str(key)),
        ("gpg.ssh.allowedSignersFile", str(tmp_path / "allowed")),
    ):
        git(crew.root, "config", name, value)
    return key


def test_a_batch_names_reviewed_tested_and_landed_commits(crew: Merges) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    a, b = crew.task("a"), crew.task("b")
    first, second = verdict_of(crew, "a"), verdict_of(crew, "b")
    assert first["reviewed"]["digest"] == {"gitCommit": a.review_commit}
    assert first["tested"]["digest"] == second["tested"]["digest"] == {"gitCommit": b.merge_commit}
    assert (first["howTested"], first["rejections"], first["retries"]) == ("tested", 0, 0)
    assert first["reviews"][0]["commit"]["digest"] == {"gitCommit": a.review_commit}
    assert "cost" not in first, "no session reported anything: absent, and not zero"
    assert len(first["gates"][0]["log"]["digest"]["sha256"]) == 64
    results = [each for each in note(crew.root, b.merge_commit) if "test-result" in each["predicateType"]]
    assert [each["subject"][0]["digest"] for each in results] == [{"gitCommit": b.merge_commit}]
    assert results[0]["predicate"]["result"] == "PASSED"
    assert results[0]["predicate"]["passedTests"] == ["tests"]
    assert verify_branch(crew.root, "integration") == {
        "branch": "integration",
        "commit": crew.tip(),
        "landed": 2,
        "signatures": {"unsigned": 2},
        "faults": [],
    }


def test_a_script_without_liza_verifies_a_fresh_clone(crew: Merges, tmp_path: Path) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    assert land_merge(crew.crew).result == "changed"
    git(tmp_path, "clone", "-q", str(crew.root), "clone")
    clone, script = tmp_path / "clone", [sys.executable, "-I", str(ROOT / "examples" / "verify_evidence.py"), "main"]
    assert verify_branch(clone)["faults"] == [f"{NOTES} is not in this clone: git fetch origin {NOTES}:{NOTES}"]
    assert subprocess.run(script, cwd=clone, check=False, capture_output=True).returncode == 1
    git(clone, "fetch", "-q", "origin", f"{NOTES}:{NOTES}")
    done = subprocess.run(script, cwd=clone, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 landed, 0 with faults"), done.stderr
    assert verify_branch(clone)["faults"] == []
    assert "| `a` | Write |" in render_branch(clone)
    # What was there before the merge is its other parent.
    a = crew.task("a")
    earlier = git(clone, "rev-parse", f"{a.merge_commit}^1").strip()
    lines = "\n".join(map(json.dumps, note(clone, a.merge_commit))).replace(str(a.review_commit), earlier)
    git(clone, "notes", "--ref", "liza", "add", "-f", "-m", lines, str(a.merge_commit))
    assert subprocess.run(script, cwd=clone, check=False, capture_output=True).returncode == 1
    git(clone, "update-ref", NOTES, f"{NOTES}^")
    rewrite_clone = json.dumps({**note(clone, crew.task("a").merge_commit)[0], "predicate": {}})
    git(clone, "notes", "--ref", "liza", "add", "-f", "-m", rewrite_clone, str(crew.task("a").merge_commit))
    assert len(verify_branch(clone)["faults"]) == 2


def test_statements_that_were_forged_or_removed_are_named(crew: Merges) -> None:
    crew.approved("a", "b", "c")
    assert crew.merge() == ""
    a, b, c = (crew.task(name).merge_commit for name in ("a", "b", "c"))
    forged = json.dumps(note(crew.root, a)[0]).replace(
        str(crew.task("a").review_commit), str(crew.task("b").review_commit)
    )
    rewrite(crew, a, forged)
    git(crew.root, "notes", "--ref", "liza", "remove", str(b))
    rewrite(crew, c, "{}\n" + "\n".join(map(json.dumps, note(crew.root, a))))
    text = "\n".join(faults(crew))
    assert f"the note of {str(a)[:12]} was rewritten: 1 statement was removed or replaced" in text
    assert f"reviewed, which did not come in by {str(a)[:12]}" in text
    assert "and the board" in text
    assert f"{str(b)[:12]} landed without a statement" in text
    assert f"the note of {str(c)[:12]} has a line that is no statement of in-toto" in text
    assert f"has a statement about another commit, {str(a)[:12]}" in text
    # The next writer brings back what was removed; what was added stays, and stays a fault.
    crew.approved("d")
    assert crew.merge() == ""
    assert len(note(crew.root, b)) == 1
    assert "was rewritten" not in "\n".join(faults(crew))
    assert f"the note of {str(a)[:12]} has 2 verdicts: a commit has one" in faults(crew)


def test_a_key_signs_and_an_unsigned_statement_is_named(crew: Merges, tmp_path: Path) -> None:
    sign_with_ssh(crew, tmp_path)
    crew.approved("a", "b")
    assert crew.merge() == ""
    assert verify_branch(crew.root, "integration")["signatures"] == {"signed by ann@example.com": 2}
    git(crew.root, "verify-commit", NOTES)
    b = crew.task("b").merge_commit
    git(
        crew.root,
        "notes",
        "--ref",
        "liza",
        "append",
        "-m",
        json.dumps(note(crew.root, b)[0]).replace("tested", "Tested"),
        str(b),
    )
    assert any("is unsigned, and earlier notes have a better signature" in fault for fault in faults(crew))
    crew.approved("c")
    assert crew.merge() == ""
    named = [fault for fault in faults(crew) if "may be forged" in fault]
    assert len(named) == 1, "a later signature does not vouch for what others wrote"
    assert str(b)[:12] in named[0]


def test_who_stops_signing_has_one_fault(crew: Merges, tmp_path: Path) -> None:
    sign_with_ssh(crew, tmp_path)
    crew.approved("a")
    assert crew.merge() == ""
    git(crew.root, "config", "--unset", "user.signingKey")
    for name in ("b", "c"):
        crew.approved(name)
        assert crew.merge() == ""
    (fault,) = faults(crew)
    assert fault.startswith("unsigned, though earlier notes have a better signature: 2 notes, from that of ")
    assert str(crew.task("b").merge_commit)[:12] in fault
    a = str(crew.task("a").merge_commit)
    git(crew.root, "notes", "--ref", "liza", "append", "-m", json.dumps(note(crew.root, a)[0]), a)
    assert any(f"the note of {a[:12]} has a statement that is unsigned" in fault for fault in faults(crew))


def test_a_locked_key_delays_the_statement_and_not_the_merge(crew: Merges, tmp_path: Path) -> None:
    key = sign_with_ssh(crew, tmp_path)
    key.rename(tmp_path / "away")
    crew.approved("a")
    assert crew.merge() == ""
    assert crew.status("a") == "MERGED"
    (alarm,) = evidence_alarms(crew)
    assert alarm.message.startswith("landed commits have no statement yet: the evidence cannot be signed")
    assert alarm.next == "liza doctor --fix"
    commit = str(crew.task("a").merge_commit)
    assert faults(crew) == [f"{commit[:12]} landed without a statement: the board has its task"]
    crew.approved("b")
    assert crew.merge() == ""
    findings = {finding.about: finding.text for finding in doctor(crew.root).findings}
    assert findings["evidence"].startswith("2 landed commits without a statement")
    (tmp_path / "away").rename(key)
    repaired = doctor(crew.root, fix=True).repaired
    assert f"2 landed commits had no statement; written to {NOTES}" in repaired
    assert verify_branch(crew.root, "integration")["signatures"] == {"signed by ann@example.com": 2}
    assert evidence_alarms(crew) == []


def test_deleted_notes_come_back_as_they_were(crew: Merges) -> None:
    crew.approved("a")
    assert crew.merge() == ""
    before = note(crew.root, crew.task("a").merge_commit)
    git(crew.root, "update-ref", "-d", NOTES)
    crew.crew.paths.gates.unlink()
    crew.approved("b")
    assert crew.merge() == ""
    assert note(crew.root, crew.task("a").merge_commit) == before
    assert faults(crew) == []


def test_notes_that_are_no_commit_name_the_command(crew: Merges) -> None:
    git(crew.root, "update-ref", NOTES, git(crew.root, "rev-parse", "HEAD:").strip())
    crew.approved("a")
    assert crew.merge() == ""
    (alarm,) = evidence_alarms(crew)
    assert alarm.message.endswith("refs/notes/liza names no commit")
    assert alarm.next == f"git update-ref -d {NOTES} && liza doctor --fix"


def test_a_repeated_line_is_one_statement(crew: Merges) -> None:
    crew.approved("a")
    assert crew.merge() == ""
    commit = str(crew.task("a").merge_commit)
    text = git(crew.root, "notes", "--ref", "liza", "show", commit)
    git(crew.root, "notes", "--ref", "liza", "append", "-m", text, commit)
    assert faults(crew) == []


@pytest.mark.campaign
def test_a_merge_writes_its_note_once_wherever_it_is_killed(crew: Merges, tmp_path: Path) -> None:
    crew.approved("a", "b")
    template, trace, quiet = tmp_path / "template", tmp_path / "trace", tmp_path / "said"
    crew.root.rename(template)
    shutil.copytree(template, crew.root, symlinks=True)
    assert forks.run(lambda: merge(crew.crew), trace=trace, quiet=quiet) == 0, quiet.read_text()
    points = forks.passed(trace)
    merged = points.index("merge.merged#1")
    for point in points[merged:]:
        shutil.rmtree(crew.root)
        shutil.copytree(template, crew.root, symlinks=True)
        assert forks.run(lambda: merge(crew.crew), point, quiet=quiet) == -signal.SIGKILL
        recover_crew(crew.crew, "coder-1")
        assert faults(crew) == [], point
        assert [len(note(crew.root, crew.task(name).merge_commit)) for name in ("a", "b")] == [1, 2], point
    assert len(points) - merged > 5


def test_diverged_notes_of_a_remote_are_joined(crew: Merges, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(crew.root, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(crew.root, "push", "-q", "origin", "main")
    accept_origin(crew.crew, find_remote(crew.crew.git).address)
    crew.approved("a")
    assert crew.merge() == ""
    remote = find_remote(crew.crew.git)
    assert notes_ref.share_notes(remote, crew.crew.clock.now())
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", "origin.git", "other")
    git(other, "fetch", "-q", "origin", f"{NOTES}:{NOTES}")
    first = git(other, "rev-parse", "HEAD")
    git(other, "notes", "--ref", "liza", "add", "-m", "of another person", first)
    git(other, "push", "-q", "origin", NOTES)
    crew.approved("b")
    assert crew.merge() == ""
    assert notes_ref.share_notes(remote, crew.crew.clock.now())
    assert git(tmp_path / "origin.git", "rev-parse", NOTES) == git(crew.root, "rev-parse", NOTES)
    assert "of another person" in git(crew.root, "notes", "--ref", "liza", "show", first)
    assert len(note(crew.root, crew.task("b").merge_commit)) == 2
    # A push of another person that rewrote the notes loses nothing either.
    git(other, "update-ref", NOTES, git(other, "rev-parse", f"{NOTES}~1"))
    git(other, "push", "-q", "--force", "origin", NOTES)
    assert notes_ref.share_notes(remote, crew.crew.clock.now())
    assert git(tmp_path / "origin.git", "rev-parse", NOTES) == git(crew.root, "rev-parse", NOTES)


def test_a_pull_request_has_the_evidence_and_its_notes_are_pushed(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(crew.root, "config", "--global", f"url.{tmp_path}/origin.git.insteadOf", "https://github.com/acme/shop.git")
    git(crew.root, "remote", "add", "origin", "https://github.com/acme/shop.git")
    git(crew.root, "push", "-q", "origin", "main")
    accept_origin(crew.crew, find_remote(crew.crew.git).address)
    gh = ForgeStandIn(tmp_path / "bin", monkeypatch)
    crew.approved("a", "b")
    assert crew.merge() == ""
    land_pr(crew.crew)
    assert git(tmp_path / "origin.git", "rev-parse", NOTES) == git(crew.root, "rev-parse", NOTES)
    body = gh.requests[0]["body"]
    assert "<details><summary>Evidence</summary>" in body
    assert f"| `a` | Write | {str(crew.task('a').merge_commit)[:12]} |" in body


def test_a_squash_on_the_persons_branch_points_to_the_commits(crew: Merges) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    git(crew.root, "merge", "-q", "--squash", "integration")
    git(crew.root, "commit", "-q", "-m", "Everything (#1)")
    assert land_merge(crew.crew).result == "unchanged"
    (landing,) = note(crew.root, crew.tip("main"))
    brought = [each["digest"]["gitCommit"] for each in landing["predicate"]["brought"]]
    assert brought == [crew.task("b").merge_commit, crew.task("a").merge_commit]
    assert verify_branch(crew.root, "main")["landed"] == 3
    assert faults(crew, "main") == []


@pytest.mark.campaign
def test_a_landing_writes_its_note_once_wherever_it_is_killed(crew: Merges, tmp_path: Path) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    template, trace, quiet = tmp_path / "template", tmp_path / "trace", tmp_path / "said"
    crew.root.rename(template)
    shutil.copytree(template, crew.root, symlinks=True)
    assert forks.run(lambda: land_merge(crew.crew), trace=trace, quiet=quiet) == 0, quiet.read_text()
    for point in forks.passed(trace):
        shutil.rmtree(crew.root)
        shutil.copytree(template, crew.root, symlinks=True)
        assert forks.run(lambda: land_merge(crew.crew), point, quiet=quiet) == -signal.SIGKILL
        recover_crew(crew.crew, "doctor")
        land_merge(crew.crew)
        landings = [each for each in note(crew.root, crew.tip("main")) if "landing" in each["predicateType"]]
        assert len(landings) == 1, point
        assert faults(crew, "main") == [], point


@pytest.mark.campaign
def test_syncs_and_undos_have_statements_of_their_own(crew: Merges) -> None:
    crew.approved("a", "b")
    assert crew.merge() == ""
    (crew.root / "own.txt").write_text("own\n")
    git(crew.root, "add", "own.txt")
    git(crew.root, "commit", "-q", "-m", "own")
    sync(crew.crew, "main")
    assert {each["predicateType"] for each in note(crew.root, crew.tip())} == {
        "urn:liza:landing:v1",
        "https://in-toto.io/attestation/test-result/v0.1",
    }
    undo(crew.crew, "a", "it was wrong")
    (landing, _) = sorted(note(crew.root, crew.tip()), key=lambda each: "test-result" in each["predicateType"])
    assert landing["predicate"]["reverts"]["digest"] == {"gitCommit": crew.task("a").merge_commit}
    assert faults(crew) == []


def test_two_hosts_write_each_statement_once(made: Path, tmp_path: Path) -> None:
    hosts = Hosts(made, tmp_path)
    hosts.a.approved("t1")
    assert hosts.b.leads(1).merge("t1") == ""
    commit = hosts.a.task("t1").merge_commit
    assert hosts.b.ref(NOTES) == hosts.tip(NOTES)
    hosts.a.approved("t2")
    assert hosts.a.leads(2).merge("t2") == ""
    assert hosts.a.ref(NOTES) == hosts.tip(NOTES)
    assert note(hosts.a.root, commit) == note(hosts.b.root, commit)
    kinds = [each["predicateType"] for each in note(hosts.a.root, commit)]
    assert (len(kinds), kinds.count(VERDICT)) == (2, 1)
    recover_crew(hosts.b.crew, "doctor")
    assert hosts.b.ref(NOTES) == hosts.tip(NOTES) == hosts.a.ref(NOTES)
