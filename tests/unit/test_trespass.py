"""Whose word the log of a ref is, and what still stands of what sessions did."""

from __future__ import annotations

import pytest

from liza.rules.trespass import HEAD, Entry, Trespass, entries, judge, marked

NONE, A, B, C = "0" * 40, "a" * 40, "b" * 40, "c" * 40
HISTORY = {A: {A}, B: {A, B}, C: {A, B, C}}
ALICE, SESSION = "Alice", marked("Alice", "coder-1.3")


def contains(commit: str, other: str) -> bool:
    return other in HISTORY.get(commit, set())


def judged(ref: str, log: list[Entry], tip: str, reviewed: int = 0) -> tuple[Trespass, ...]:
    return judge({ref: log}, {ref: reviewed}, {ref: tip}, contains, {"main": "/here", "": "/here"})


BORN = Entry(NONE, A, ALICE, 1, "commit (initial): first")
ROWS: dict[str, tuple[list[Entry], str, bool]] = {
    "a session commits": ([BORN, Entry(A, B, SESSION, 5, "commit: x")], B, True),
    "a person commits": ([BORN, Entry(A, B, ALICE, 5, "commit: x")], B, False),
    "a session commits, and the person on top of it": (
        [BORN, Entry(A, B, SESSION, 5, "commit: x"), Entry(B, C, ALICE, 6, "commit: y")],
        C,
        True,
    ),
    "a session commits, and the person goes back": (
        [BORN, Entry(A, B, SESSION, 5, "commit: x"), Entry(B, A, ALICE, 6, "reset: moving to a")],
        A,
        False,
    ),
    "a session goes back": ([BORN, Entry(A, B, ALICE, 2, "commit: x"), Entry(B, A, SESSION, 5, "reset")], A, True),
    "a session goes back, and the person on again": (
        [BORN, Entry(B, A, SESSION, 5, "reset"), Entry(A, B, ALICE, 6, "reset")],
        B,
        False,
    ),
    "a branch of the session's own": (
        [Entry(NONE, A, SESSION, 4, "branch: Created"), Entry(A, B, SESSION, 5, "commit: x")],
        B,
        False,
    ),
    "before a person looked": ([BORN, Entry(A, B, SESSION, 3, "commit: x")], B, False),
}


@pytest.mark.parametrize(("log", "tip", "told"), ROWS.values(), ids=ROWS)
def test_a_branch_is_told_of_while_what_a_session_did_to_it_stands(log: list[Entry], tip: str, told: bool) -> None:
    assert bool(judged("refs/heads/main", log, tip, reviewed=3)) is told


def test_the_way_back_is_that_of_the_place_where_the_branch_is() -> None:
    log = [BORN, Entry(A, B, SESSION, 5, "commit: x")]
    assert judged("refs/heads/main", log, B)[0].way == f"git -C /here reset --keep {A[:12]}"
    assert judged("refs/heads/side", log, B)[0].way == f"git branch -f side {A[:12]}"
    over = [*log, Entry(B, C, ALICE, 6, "commit: y")]
    assert judged("refs/heads/main", over, C)[0].way == "git reflog show main"


def test_a_push_is_told_and_a_fetch_is_not() -> None:
    ref = "refs/remotes/origin/main"
    (push,) = judged(ref, [Entry(A, B, SESSION, 5, "update by push")], B)
    assert (push.about, push.way) == (
        "origin/main",
        f"git push --force-with-lease=main:{B[:12]} origin {A[:12]}:refs/heads/main",
    )
    (fresh,) = judged(ref, [Entry(NONE, B, SESSION, 5, "update by push")], B)
    assert fresh.way == f"git push --force-with-lease=main:{B[:12]} origin :main"
    assert judged(ref, [Entry(A, B, SESSION, 5, "fetch origin: fast-forward")], B) == ()


def test_a_checkout_is_told_of_while_it_stands_where_a_session_switched_it() -> None:
    log = [Entry(A, A, SESSION, 5, "checkout: moving from main to side")]
    (there,) = judge({HEAD: log}, {}, {HEAD: A}, contains, {"side": "/here", "": "/here"})
    assert there.way == "git -C /here switch main"
    assert judge({HEAD: log}, {}, {HEAD: A}, contains, {"main": "/here", "": "/here"}) == ()


def test_a_log_is_read_as_git_writes_it_and_nonsense_in_it_is_passed_over() -> None:
    line = f"{A} {B} Alice (the (coder-1.3) one) (coder-12.40) <a@b> 1700000000 +0100\tcommit: a\ttab"
    (one,) = entries(f"{line}\nnonsense\n\n")
    assert (one.run, one.time, one.message) == ("coder-12.40", 1700000000, "commit: a\ttab")
    assert Entry(A, B, "Alice (coder-1)", 1, "").run is None
