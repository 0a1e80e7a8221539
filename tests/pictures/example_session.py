"""The output of a session of the example crew, as a program with streaming JSON prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from liza.crew.crew import Crew
from liza.view.all_logs import TIMES_FILE

_STEPS: list[tuple[str, str, dict[str, Any], str, bool]] = [
    ("", "I read the spec and the failing test first.", {}, "", False),
    ("Read", "t1", {"file_path": "docs/invoice.md"}, "# Invoices\n\nA page has at most 30 lines.", False),
    ("Bash", "t2", {"command": "pytest -q tests/test_pdf.py"}, "Exit code 1\nF.\n1 failed, 1 passed in 0.41s", True),
    ("", "test_long_invoice fails: line 31 is drawn below the edge of the page.", {}, "", False),
    (
        "Edit",
        "t3",
        {
            "file_path": "shop/pdf.py",
            "old_string": "    for line in lines:\n        draw(page, line)",
            "new_string": "    for number, line in enumerate(lines):\n        if number and number % 30 == 0:\n"
            "            page = document.add_page()\n        draw(page, line)",
        },
        "The file shop/pdf.py has been updated.",
        False,
    ),
    (
        "Bash",
        "t4",
        {"command": "pip install reportlab==4.2"},
        "Permission to use Bash with command pip install reportlab==4.2 has been denied.",
        True,
    ),
    ("", "The library is in the requirements already: the installed version does.", {}, "", False),
    ("Bash", "t5", {"command": "pytest -q tests/test_pdf.py"}, "..\n2 passed in 0.38s", False),
    ("Bash", "t6", {"command": "git commit -q -a -m 'Break the page after 30 lines'"}, "", False),
]


def write_session(crew: Crew, run: str, started: datetime) -> None:
    """Write the output of the run, with the times of its lines."""
    output = crew.run_dir(run).output_path
    lines = [json.dumps(event) + "\n" for event in _events()]
    sizes = [len("".join(lines[: number + 1]).encode()) for number in range(len(lines))]
    output.write_text("".join(lines), encoding="utf-8")
    times = [started + timedelta(seconds=20 + 23 * number) for number in range(len(lines))]
    notes = (f"{int(when.timestamp())} {size}\n" for when, size in zip(times, sizes, strict=True))
    output.with_name(TIMES_FILE).write_text("".join(notes))


def _events() -> Iterator[dict[str, Any]]:
    for number, (tool, text, arguments, result, is_error) in enumerate(_STEPS):
        part = {"type": "tool_use", "id": text, "name": tool, "input": arguments}
        usage = {"input_tokens": 900 + 700 * number, "cache_read_input_tokens": 12000, "output_tokens": 120}
        content = part if tool else {"type": "text", "text": text}
        message = {"id": f"m{number}", "role": "assistant", "model": "m", "content": [content], "usage": usage}
        yield {"type": "assistant", "message": message, "parent_tool_use_id": None}
        if tool:
            answer = {"type": "tool_result", "tool_use_id": text, "content": result, "is_error": is_error}
            yield {"type": "user", "message": {"role": "user", "content": [answer]}, "parent_tool_use_id": None}
