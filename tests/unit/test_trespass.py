"""Whose word the log of a ref is, and what still stands of what sessions did."""

from __future__ import annotations

import pytest

from liza.repo import ref_names
from liza.rules.model import Goal, State
from liza.rules.reports import drift_alarms
from liza.rules.reports.ref_moves import (
    HEAD,
    ReflogEntry,
    SessionRefMove,
    find_session_moves,
    parse_reflog,
    remembered,
    session_author,
)

NONE, A, B, C = "0" * 40, "a" * 40, "b" * 40, "c" * 40
HISTORY = {A: {A}, B: {A, B}, C: {A, B, C}}
ALICE, SESSION = "Alice", session_author("Alice", "coder-1.3")


def contains(commit: str, other: str) -> bool:
    return other in HISTORY.get(commit, set())


def judged(ref: str, log: list[ReflogEntry], tip: str, reviewed: int = 0) -> tuple[SessionRefMove, ...]:
    return find_session_moves({ref: log}, {ref: reviewed}, {ref: tip}, contains, {"main": "/here", "": "/here"})


BORN = ReflogEntry(NONE, A, ALICE, 1, "commit (initial): first")
ROWS: dict[str, tuple[list[ReflogEntry], str, bool]] = {
    "a session commits": ([BORN, ReflogEntry(A, B, SESSION, 5, "commit: x")], B, True),
    "a person commits": ([BORN, ReflogEntry(A, B, ALICE, 5, "commit: x")], B, False),
    "a session commits, and the person on top of it": (
        [BORN, ReflogEntry(A, B, SESSION, 5, "commit: x"), ReflogEntry(B, C, ALICE, 6, "commit: y")],
        C,
        True,
    ),
    "a session commits, and the person goes back": (
        [BORN, ReflogEntry(A, B, SESSION, 5, "commit: x"), ReflogEntry(B, A, ALICE, 6, "reset: moving to a")],
        A,
        False,
    ),
    "a session goes back": (
        [BORN, ReflogEntry(A, B, ALICE, 2, "commit: x"), ReflogEntry(B, A, SESSION, 5, "reset")],
        A,
        True,
    ),
    "a session goes back, and the person on again": (
        [BORN, ReflogEntry(B, A, SESSION, 5, "reset"), ReflogEntry(A, B, ALICE, 6, "reset")],
        B,
        False,
    ),
    "a branch of the session's own": (
        [ReflogEntry(NONE, A, SESSION, 4, "branch: Created"), ReflogEntry(A, B, SESSION, 5, "commit: x")],
        B,
        False,
    ),
    "before a person looked": ([BORN, ReflogEntry(A, B, SESSION, 3, "commit: x")], B, False),
}


@pytest.mark.parametrize(("log", "tip", "told"), ROWS.values(), ids=ROWS)
def test_a_branch_is_told_of_while_what_a_session_did_to_it_stands(
    log: list[ReflogEntry], tip: str, told: bool
) -> None:
    assert bool(judged("refs/heads/main", log, tip, reviewed=3)) is told


def test_the_way_back_is_that_of_the_place_where_the_branch_is() -> None:
    log = [BORN, ReflogEntry(A, B, SESSION, 5, "commit: x")]
    assert judged("refs/heads/main", log, B)[0].way == f"git -C /here reset --keep {A[:12]}"
    assert judged("refs/heads/side", log, B)[0].way == f"git branch -f side {A[:12]}"
    over = [*log, ReflogEntry(B, C, ALICE, 6, "commit: y")]
    assert judged("refs/heads/main", over, C)[0].way == "git reflog show main"


RENAMED = ReflogEntry(B, B, SESSION, 5, "Branch: renamed refs/heads/main to refs/heads/moved")


def test_a_renamed_branch_is_told_of_with_its_former_name_until_there_is_one_of_that_name() -> None:
    log = {"refs/heads/moved": [BORN, RENAMED]}
    tips = {"refs/heads/moved": B}
    (told,) = find_session_moves(log, {}, tips, contains, {"moved": "/here", "": "/here"})
    assert told.way == "git branch -m moved main"
    assert told.message == "the session coder-1.3 renamed the branch main; its name is moved now"
    assert find_session_moves(log, {}, {**tips, "refs/heads/main": B}, contains, {}) == ()
    assert (
        judged("refs/heads/main", [*log["refs/heads/moved"], ReflogEntry(B, B, ALICE, 6, "Branch: renamed")], B) == ()
    )
    copied = [BORN, ReflogEntry(A, A, SESSION, 5, "Branch: copied refs/heads/main to refs/heads/x")]
    assert judged("refs/heads/x", [*copied, ReflogEntry(A, B, SESSION, 6, "commit: x")], B) == ()


def test_a_branch_that_a_session_made_under_the_name_of_a_persons_is_told_of_with_the_commit_it_had() -> None:
    ref, born = "refs/heads/side", ReflogEntry(NONE, C, SESSION, 5, "branch: Created from HEAD")
    known = remembered({}, {ref: [BORN], "refs/heads/own": [born], HEAD: [BORN]})
    assert known == {ref: A}
    known = remembered(known, {})
    assert remembered(known, {ref: [born]}) == {ref: A}, "neither without it nor with the new one is it forgotten"

    def told(log: list[ReflogEntry], known: dict[str, str], tip: str, reviewed: int = 0) -> list[str]:
        return [one.way for one in find_session_moves({ref: log}, {ref: reviewed}, {ref: tip}, contains, {}, known)]

    assert told([born], known, C) == [f"git branch -f side {A[:12]}"]
    assert told([born], {}, C) == []
    assert told([born], known, C, reviewed=5) == []
    assert told([born], {ref: C}, C) == [], "it has the same commit as before"
    assert told([born, ReflogEntry(C, A, ALICE, 6, "branch: Reset")], known, A) == []
    assert (
        told([born, ReflogEntry(C, A, ALICE, 6, "branch: Reset"), ReflogEntry(A, B, ALICE, 7, "commit: y")], known, B)
        == []
    )
    over = [ReflogEntry(NONE, B, SESSION, 5, "branch: Created from HEAD"), ReflogEntry(B, C, ALICE, 6, "commit: y")]
    assert told(over, known, C) == [f"git branch side-before {A[:12]}"]


def test_a_push_is_told_and_a_fetch_is_not() -> None:
    ref = "refs/remotes/origin/main"
    (push,) = judged(ref, [ReflogEntry(A, B, SESSION, 5, "update by push")], B)
    assert (push.about, push.way) == (
        "origin/main",
        f"git push --force-with-lease=main:{B[:12]} origin {A[:12]}:refs/heads/main",
    )
    (fresh,) = judged(ref, [ReflogEntry(NONE, B, SESSION, 5, "update by push")], B)
    assert fresh.way == f"git push --force-with-lease=main:{B[:12]} origin :main"
    assert judged(ref, [ReflogEntry(A, B, SESSION, 5, "fetch origin: fast-forward")], B) == ()


def test_a_checkout_is_told_of_while_it_stands_where_a_session_switched_it() -> None:
    log = [ReflogEntry(A, A, SESSION, 5, "checkout: moving from main to side")]
    (there,) = find_session_moves({HEAD: log}, {}, {HEAD: A}, contains, {"side": "/here", "": "/here"})
    assert there.way == "git -C /here switch main"
    assert find_session_moves({HEAD: log}, {}, {HEAD: A}, contains, {"main": "/here", "": "/here"}) == ()


def test_a_checkout_is_told_of_that_a_session_took_off_its_branch() -> None:
    log = [ReflogEntry(A, B, SESSION, 5, f"checkout: moving from main to {B}")]
    elsewhere = {"side": "/there", "": "/here"}
    (there,) = find_session_moves({HEAD: log}, {}, {HEAD: B}, contains, elsewhere)
    assert there.way == "git -C /here switch main"
    assert find_session_moves({HEAD: log}, {}, {HEAD: C}, contains, elsewhere) == ()


def test_a_checkout_that_was_on_no_branch_goes_back_to_its_commit() -> None:
    log = [ReflogEntry(A, B, SESSION, 5, f"checkout: moving from {A} to side")]
    (there,) = find_session_moves({HEAD: log}, {}, {HEAD: B}, contains, {"side": "/here", "": "/here"})
    assert there.way == f"git -C /here switch --detach {A}"


def test_no_name_that_a_session_chose_is_more_than_a_word_of_a_command() -> None:
    ref = "refs/remotes/origin/$(evil)"
    (push,) = judged(ref, [ReflogEntry(NONE, B, SESSION, 5, "update by push")], B)
    state = State(version=1, revision=1, goal=Goal(id="g", status="IN_PROGRESS"))
    (alarm,) = drift_alarms.repository_alarms(state, drift_alarms.RepositoryDrift(trespasses=(push,)), ())
    assert alarm.message.endswith("To keep it: liza doctor --accept 'origin/$(evil)'")
    assert (
        ref_names.ref_conflict_error("task/a/$(evil)", "task/a").hint
        == "git branch -m 'task/a/$(evil)' 'task-a-$(evil)-old'"
    )


def test_a_log_is_read_as_git_writes_it_and_nonsense_in_it_is_passed_over() -> None:
    line = f"{A} {B} Alice (the (coder-1.3) one) (coder-12.40) <a@b> 1700000000 +0100\tcommit: a\ttab"
    (one,) = parse_reflog(f"{line}\nnonsense\n\n")
    assert (one.run, one.time, one.message) == ("coder-12.40", 1700000000, "commit: a\ttab")
    assert ReflogEntry(A, B, "Alice (coder-1)", 1, "").run is None


def moves(
    log: list[ReflogEntry], tip: str, reviewed: dict[str, int] | None = None, ref: str = "refs/heads/main"
) -> list[str]:
    moved = find_session_moves({ref: log}, reviewed or {}, {ref: tip}, contains, {"main": "/my shop", "": "/my shop"})
    return [move.message for move in moved]


OTHER_SESSION = session_author("Alice", "code-reviewer-2.1")


def test_a_move_is_told_with_its_sessions_commits_and_what_git_says() -> None:
    log = [BORN, ReflogEntry(A, B, SESSION, 5, "commit: x")]
    assert moves(log, B) == ["the session coder-1.3 moved the branch main from aaaaaaaaaa to bbbbbbbbbb (commit: x)"]
    two = [*log, ReflogEntry(B, C, OTHER_SESSION, 6, "commit: y"), ReflogEntry(C, C, SESSION, 7, "no move")]
    assert moves(two, C) == [
        "the sessions coder-1.3, code-reviewer-2.1 moved the branch main from aaaaaaaaaa to cccccccccc (commit: y)"
    ]
    since = [*log, ReflogEntry(B, C, ALICE, 6, "commit: y")]
    assert moves(since, C) == [
        "the session coder-1.3 moved the branch main from aaaaaaaaaa to bbbbbbbbbb (commit: x); "
        "others have moved it since"
    ]
    push = [ReflogEntry(A, B, SESSION, 5, "update by push")]
    assert moves(push, B, ref="refs/remotes/origin/main") == [
        "the session coder-1.3 pushed to origin/main: from aaaaaaaaaa to bbbbbbbbbb"
    ]
    fresh = [ReflogEntry(NONE, B, SESSION, 5, "update by push")]
    assert moves(fresh, B, ref="refs/remotes/origin/a/b") == [
        "the session coder-1.3 pushed bbbbbbbbbb to origin/a/b, which was not there before"
    ]
    switch = [ReflogEntry(A, B, SESSION, 5, "checkout: moving from main to side")]
    (there,) = find_session_moves({HEAD: switch}, {}, {HEAD: B}, contains, {"side": "/my shop", "": "/my shop"})
    assert there == SessionRefMove(
        HEAD,
        HEAD,
        "the session coder-1.3 switched your checkout from main to side",
        "git -C '/my shop' switch main",
    )


def test_a_branch_that_was_created_again_is_told_with_the_commit_that_it_had() -> None:
    ref, born = "refs/heads/side", ReflogEntry(NONE, C, SESSION, 5, "branch: Created from HEAD")
    (again,) = find_session_moves({ref: [born]}, {}, {ref: C}, contains, {}, {ref: A})
    assert (again.ref, again.about) == (ref, "side")
    assert again.message == (
        "the branch side was deleted at aaaaaaaaaa, and the session coder-1.3 created it again at cccccccccc"
    )


@pytest.mark.parametrize(
    ("reviewed", "told"),
    [
        ({}, True),
        ({"*": 4}, True),
        ({"*": 5}, False),
        ({"refs/heads/main": 5}, False),
        ({"*": 5, "refs/heads/main": 4}, False),
        ({"refs/heads/side": 9}, True),
    ],
)
def test_what_a_person_accepted_for_one_ref_or_for_all_is_told_no_more(reviewed: dict[str, int], told: bool) -> None:
    assert bool(moves([BORN, ReflogEntry(A, B, SESSION, 5, "commit: x")], B, reviewed)) is told


def test_a_push_counts_until_the_remote_branch_is_back_and_other_moves_of_it_do_not() -> None:
    ref = "refs/remotes/origin/main"
    pushes = [ReflogEntry(A, B, SESSION, 5, "update by push"), ReflogEntry(B, C, SESSION, 6, "update by push")]
    assert moves(pushes, C, ref=ref) == ["the session coder-1.3 pushed to origin/main: from aaaaaaaaaa to cccccccccc"]
    assert moves(pushes, B, ref=ref) == []
    gone = find_session_moves({ref: pushes}, {}, {}, contains, {})
    assert gone == ()


def test_refs_are_told_in_reverse_order_of_their_names() -> None:
    log = [BORN, ReflogEntry(A, B, SESSION, 5, "commit: x")]
    refs = {"refs/heads/a": log, "refs/heads/b": log}
    assert [move.about for move in find_session_moves(refs, {}, dict.fromkeys(refs, B), contains, {})] == ["b", "a"]


@pytest.mark.parametrize(
    ("entries", "checkouts", "tip", "told"),
    [
        ([("main", "side")], {"side": "/here", "": "/here"}, A, "git -C /here switch main"),
        ([("main", "side"), ("side", "main")], {"main": "/here", "": "/here"}, A, None),
        ([("main", "side"), ("side", "x")], {"x": "/here", "": "/here"}, A, "git -C /here switch main"),
        ([("main", "side")], {"side": "/there", "": "/here"}, B, "git -C /here switch main"),
        ([("main", "side")], {"main": "/here", "side": "/there", "": "/here"}, B, None),
        ([("main", "side")], {}, B, "git -C . switch main"),
        ([("a" * 40, "side")], {"side": "/here", "": "/here"}, A, f"git -C /here switch --detach {'a' * 40}"),
        ([("a" * 64, "side")], {"side": "/here", "": "/here"}, A, f"git -C /here switch --detach {'a' * 64}"),
        ([("a" * 41, "side")], {"side": "/here", "": "/here"}, A, f"git -C /here switch {'a' * 41}"),
    ],
)
def test_the_switch_of_a_checkout_is_told_with_the_branch_it_was_on_first(
    entries: list[tuple[str, str]], checkouts: dict[str, str], tip: str, told: str | None
) -> None:
    log = [ReflogEntry(A, B, SESSION, 5, f"checkout: moving from {was} to {now}") for was, now in entries]
    log.append(ReflogEntry(A, B, SESSION, 6, "commit: x"))
    switched = find_session_moves({HEAD: log}, {}, {HEAD: tip}, contains, checkouts)
    assert [move.way for move in switched] == ([told] if told else [])


def test_tips_are_remembered_of_branches_of_people_and_a_thousand_of_them() -> None:
    copied = [BORN, ReflogEntry(A, A, SESSION, 2, "branch: copied refs/heads/a to refs/heads/b")]
    logs = {"refs/heads/copy": copied, "refs/heads/empty": [], "refs/tags/t": [BORN], "refs/heads/main": [BORN]}
    before = {"refs/heads/main": C, "refs/heads/copy": B}
    assert remembered(before, logs) == {"refs/heads/copy": B, "refs/heads/main": A}
    many = {f"refs/heads/{number}": A for number in range(1000)}
    kept = remembered(many, {"refs/heads/main": [BORN]})
    assert len(kept) == 1000
    assert "refs/heads/main" in kept
    assert "refs/heads/0" not in kept


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{A} {B} Al <a@b> 17 -0130\tcommit: x", "commit: x"),
        (f"{A} {B} Al <> 17 +0000", ""),
        (f"{'a' * 64} {'b' * 64} Al <a> 17 +0000\tm", "m"),
        (f"{A[:-1]} {B} Al <a> 17 +0000\tm", None),
        (f"{A} {B} Al <a> 17 0000\tm", None),
        (f"{A} {B} Al <a> x +0000\tm", None),
    ],
)
def test_each_line_of_a_reflog_is_an_entry_or_nothing(line: str, message: str | None) -> None:
    entries = list(parse_reflog(line))
    assert [(entry.name, entry.time, entry.message) for entry in entries] == (
        [] if message is None else [("Al", 17, message)]
    )


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("A (planner-1.2)", "planner-1.2"),
        ("A (code-reviewer-10.20)", "code-reviewer-10.20"),
        ("A (coder-1.3) B", None),
        ("A (tester-1.3)", None),
        ("A(coder-1.3)", None),
        ("A (coder-1.1234567890)", None),
    ],
)
def test_the_run_of_a_session_ends_the_name(name: str, run: str | None) -> None:
    assert ReflogEntry(A, B, name, 1, "").run == run
    assert session_author("A", "coder-1.3") == "A (coder-1.3)"


def test_only_an_entry_without_an_old_commit_is_the_first_of_its_ref() -> None:
    assert BORN.is_first
    assert not ReflogEntry("0" * 39 + "1", A, ALICE, 1, "").is_first
