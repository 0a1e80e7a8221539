"""Edits of the lines of a board, as people make them."""

from __future__ import annotations

from hypothesis import strategies as st

LINES = [
    "",
    "# note",
    "  # note",
    "    # note",
    "      # note",
    "   ",
    "---",
    "...",
    "tasks:",
    "agents:",
    "handoff:",
    "mood: good",
    "anomalies:",
    "    colour: red",
    "  colour: red",
    "      two",
    "- id: t8",
    "  - id: t9",
    "    status: DRAFT",
    "  coder-3:",
    "    role: coder",
    "    status: IDLE",
    "  - id: t1",
    "\t# note",
]
LineEdit = tuple[str, int, int, str]
line_edits = st.tuples(
    st.sampled_from(["insert", "insert", "delete", "move", "double", "replace"]),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(LINES),
)


def edited(text: str, edit: LineEdit) -> str:
    """The text with one line or a few inserted, deleted, moved, doubled or replaced."""
    act, at, other, line = edit
    lines = text.splitlines(keepends=True) or [""]
    i, j = at % len(lines), other % len(lines)
    if act == "insert":
        lines.insert(i, f"{line}\n")
    elif act == "delete":
        del lines[min(i, j) : min(i, j) + 1 + other % 3]
    elif act == "move":
        lines.insert(j, lines.pop(i))
    elif act == "double":
        lines[i:i] = lines[j : j + 3]
    else:
        lines[i] = f"{line}\n"
    return "".join(lines)
