"""A diff on a page: every line is there, each comment is at its line, and each hunk can be commented."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liza.tasks.diff import TaskDiff
from liza.ui.rules.picture_view import DraftComment
from liza.ui.rules.task_screen import split_diff
from liza.ui.web.page_diff import MAX_INLINE, PageDiff, show_diff

TWO_HUNKS = """\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,2 +1,2 @@
 one
-two
+TWO
@@ -9 +9,2 @@
 nine
+ten
\\ No newline at end of file
diff --git a/gone.py b/gone.py
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""
QUOTE = {"path": "a.py", "line": 2, "quote": "TWO", "commit": "c" * 40, "text": "why?"}


def shown(diff: str, *drafts: DraftComment, comments: tuple[dict[str, Any], ...] = (), **options: Any) -> PageDiff:
    task = TaskDiff("t", "READY_FOR_REVIEW", "b" * 40, "c" * 40, None, (), comments, diff)
    return show_diff(task, drafts, **{"is_all": False, "hunk": None, **options})


def lines_of(diff: PageDiff) -> list[str]:
    return [line for part in diff.parts for run in part.runs for line in run.text.split("\n")]


def draft(location: str, text: str = "mine") -> DraftComment:
    return DraftComment("t", "c" * 40, location, text)


def test_all_lines_are_there_in_their_order() -> None:
    assert "\n".join(lines_of(shown(TWO_HUNKS))) + "\n" == TWO_HUNKS
    assert "\n".join(lines_of(shown(TWO_HUNKS, draft("a.py:1"), draft("a.py:9")))) + "\n" == TWO_HUNKS


@given(st.lists(st.sampled_from(["+a", "-b", " c", "", "@@ -1 +1,2 @@", "diff --git a/x b/x", "\\ No newline"])))
def test_no_line_of_a_diff_is_lost(rows: list[str]) -> None:
    diff = "\n".join(rows)
    expected = [row.text for row in split_diff(diff)]
    assert lines_of(shown(diff)) == expected


def test_each_hunk_begins_and_ends_once() -> None:
    parts = shown(TWO_HUNKS, draft("a.py:1")).parts
    assert [part.begins for part in parts if part.begins] == [1, 2, 3]
    assert [part.ends for part in parts if part.ends] == [1, 2, 3]


def test_comments_are_below_their_lines() -> None:
    parts = shown(TWO_HUNKS, draft("a.py:9"), comments=(QUOTE,)).parts
    below = {part.runs[-1].text.rpartition("\n")[2]: [row.text for row in part.remarks] for part in parts}
    assert below["+TWO"] == ["why?"]
    assert below[" nine"] == ["mine"]


def test_a_comment_whose_line_is_gone_is_above_the_diff() -> None:
    diff = shown(TWO_HUNKS, draft("b.py:3"), comments=({**QUOTE, "quote": "Two"},))
    assert [row.text for row in diff.remarks] == ["why?", "mine"]


def test_removed_lines_can_be_commented_but_not_those_of_a_deleted_file() -> None:
    assert [row.label for row in shown(TWO_HUNKS, hunk=1).choices] == ["1  one", "removed -two", "2 +TWO"]
    assert shown(TWO_HUNKS, hunk=3).choices == ()
    assert shown(TWO_HUNKS, hunk=9).choices == ()


def test_a_diff_is_whole_only_with_its_last_line() -> None:
    rows = "".join(f"+{number}\n" for number in range(MAX_INLINE))
    diff = f"+++ b/a\n@@ -0,0 +1,{MAX_INLINE} @@\n{rows}"
    assert not shown(diff).is_whole
    assert shown(diff, is_all=True).is_whole
