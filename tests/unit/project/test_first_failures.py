"""The first failed test in the output of a runner, and the line that says why."""

from __future__ import annotations

import pytest

from liza.project.rules.first_failures import describe_output, find_first_failure

OUTPUTS = {
    "pytest: errors come before failures": (
        """\
FE                                                     [100%]
=========================== ERRORS ============================
_________________ ERROR at setup of test_http _________________
E       recursive dependency involving fixture 'httpbin' detected
========================== FAILURES ===========================
________________________ TestA.test_b _________________________
E       assert 1 == 2
=========================== warnings ==========================
x.py:3: DeprecationWarning: old
FAILED test_a.py::TestA::test_b - assert 1 == 2
ERROR test_a.py::test_http
""",
        "ERROR test_a.py::test_http",
        "recursive dependency involving fixture 'httpbin' detected",
    ),
    "pytest: a failed method of a class": (
        """\
________________________ TestA.test_b _________________________
E       assert 1 == 2
FAILED test_a.py::TestA::test_b - assert 1 == 2
FAILED test_a.py::test_c - assert 2 == 3
""",
        "FAILED test_a.py::TestA::test_b",
        "assert 1 == 2",
    ),
    "pytest: options of a plugin": (
        "ERROR: usage: __main__.py [options]\n__main__.py: error: unrecognized arguments: --cov=x\n  rootdir: /x\n",
        "pytest",
        "unrecognized arguments: --cov=x",
    ),
    "unittest": (
        """\
FAIL: test_x (tests.test_a.A.test_x)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/x/tests/test_a.py", line 4, in test_x
AssertionError: 1 != 2

Ran 2 tests in 0.000s
""",
        "FAIL: test_x (tests.test_a.A.test_x)",
        "AssertionError: 1 != 2",
    ),
    "jest": (
        "FAIL src/a.test.js\n  ● sums › adds\n\n    expect(received).toBe(expected)\n\n    Expected: 3\n",
        "sums › adds",
        "expect(received).toBe(expected)",
    ),
    "vitest": (
        " FAIL  src/a.test.ts > sums > adds\nAssertionError: expected 2 to be 3\n",
        "src/a.test.ts > sums > adds",
        "AssertionError: expected 2 to be 3",
    ),
    "mocha": (
        "  1 passing (4ms)\n  1 failing\n\n  1) sums\n       adds:\n\n      AssertionError: 1 == 2\n",
        "sums adds",
        "AssertionError: 1 == 2",
    ),
    "node --test": (
        "✔ ok (1ms)\n✖ adds (2.1ms)\nℹ tests 2\n✖ failing tests:\n\n  AssertionError [ERR_ASSERTION]: 1 == 2\n",
        "adds",
        "AssertionError [ERR_ASSERTION]: 1 == 2",
    ),
    "node --test, TAP": ("not ok 1 - adds\n  ---\n  error: 'one is not two'\n", "adds", "one is not two"),
    "go": (
        "--- FAIL: TestAdd (0.00s)\n    --- FAIL: TestAdd/neg (0.00s)\n        add_test.go:9: got 1, want 2\nFAIL\n",
        "FAIL: TestAdd/neg",
        "add_test.go:9: got 1, want 2",
    ),
    "go, a failed build": ("# x\n./a.go:3:2: undefined: y\nFAIL\tx [build failed]\n", "x", "./a.go:3:2: undefined: y"),
    "cargo": (
        "test tests::it ... FAILED\n\nthread 'tests::it' panicked at src/lib.rs:7:9:\nleft is not right\n",
        "tests::it",
        "src/lib.rs:7:9: left is not right",
    ),
    "cargo, a failed build": (
        "error[E0425]: cannot find value `x`\n --> src/lib.rs:3:5\n",
        "error[E0425]: cannot find value `x`",
        "--> src/lib.rs:3:5",
    ),
    "tsc": ("src/a.ts(3,5): error TS2322: no string\n", "src/a.ts(3,5)", "error TS2322: no string"),
    "npm": ('npm ERR! code ENOENT\nnpm ERR! Missing script: "test"\n', 'Missing script: "test"', ""),
    "pip": ("WARNING: Retrying\nERROR: No matching distribution\n", "ERROR: No matching distribution", ""),
    "make": ("python3 x\nmake: *** [Makefile:2: test] Error 1\n", "make: *** [Makefile:2: test] Error 1", ""),
}


@pytest.mark.parametrize(("output", "test", "reason"), OUTPUTS.values(), ids=OUTPUTS)
def test_the_first_failure_of_a_runner_is_recognized(output: str, test: str, reason: str) -> None:
    failure = find_first_failure(output)
    assert failure is not None
    assert (failure.test, failure.reason) == (test, reason)


def test_an_unknown_output_is_shown_without_its_warnings() -> None:
    assert describe_output("first\nwarning: one\n\x1b[31mlast\x1b[0m\nDeprecationWarning: two\n") == "first\nlast"
    assert describe_output("warning: one\n") == "warning: one"
    assert describe_output("") == ""
