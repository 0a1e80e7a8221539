"""What an agent prints, followed while it prints it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.edges.test_secrets import SECRETS
from tests.journeys.crews import BIN, LIMIT, Crew

SECRET = SECRETS["github"]


@contextmanager
def followed(crew: Crew) -> Iterator[subprocess.Popen[str]]:
    words = [str(BIN / "liza"), "logs", "coder-1", "-f"]
    child = subprocess.Popen(words, cwd=crew.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=LIMIT)


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_a_secret_that_is_printed_in_two_parts_is_taken_out_for_who_follows_and_a_last_line_comes_at_the_end(
    crew: Crew,
) -> None:
    crew.gate("begun")
    crew.gate("on")
    crew.add("t1")
    program = crew.script(
        "agent",
        f"""
        echo first
        printf 'key: {SECRET[:12]}'
        cat "$NOTES/begun" "$NOTES/on" > /dev/null
        printf '{SECRET[12:20]}'; sleep 1; printf '{SECRET[20:]} é\\n'
        printf 'the last one'
        liza exit 1 > /dev/null
        """,
    )
    crew.agent("coder-1", program)
    crew.open_gate("begun")
    with followed(crew) as child:
        assert line(child) == "first\n"
        crew.open_gate("on")
        assert line(child) == "key: [redacted: GitHub token] é\n"
        assert line(child).startswith("the last one")


def test_a_pipe_in_the_place_of_a_runs_output_is_named_and_holds_up_neither_logs_nor_the_supervisor(crew: Crew) -> None:
    crew.add("t1")
    swap = f'cd "{crew.paths.runs}/coder-1/$LIZA_RUN"\nmv output.log aside\nmkfifo output.log\n'
    program = crew.script("agent", f'({swap})\ncat "$NOTES/on"\nliza block "no way" --ask "what then?" > /dev/null\n')
    crew.gate("on")
    crew.agent("coder-1", program)
    crew.wait(lambda _: (crew.paths.run("coder-1.1") / "aside").exists())
    told = crew.liza("logs", "coder-1", code=5)
    assert "output.log is no file\n  next: ls -lL " in told
    crew.open_gate("on")
    crew.wait_status("t1", "BLOCKED")
    crew.wait(lambda state: state.agents["coder-1"].status == "IDLE", "the supervisor at rest")
