"""Render accounts of programs as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liza.cli.render.columns import align_columns
from liza.cli.render.text_formats import shorten_line

_NO_ACCOUNTS = (
    "no accounts: each program uses its own login, or the variables that it inherits.\n"
    "Several accounts of a program are listed in {file}"
)


def format_accounts(report: Mapping[str, Any]) -> str:
    """Return one line per account: its state, its source, the sessions that use it; then obstacles and problems."""
    rows = [[row["id"], _state(row), _source(row), ", ".join(row["used_by"])] for row in report["accounts"]]
    lines = [align_columns(rows) or _NO_ACCOUNTS.format(file=report["file"])]
    for row in report["accounts"]:
        if row["reason"]:
            again = f"liza programs accounts --clear {row['id']}"
            lines.append(f"{row['id']}: {shorten_line(row['reason'], 200)}: {again}")
        if row["problem"]:
            lines.append(f"! {shorten_line(row['problem'], 200)}")
        elif "checked" in row:
            lines.append(f"{row['id']}: {_check_result(row)}")
    return "\n".join([*lines, *report["notices"]])


def _check_result(row: Mapping[str, Any]) -> str:
    """Return what `--check` showed of an account without a problem."""
    if not row["checked"]:
        return "not checked: only the program can read its own login"
    return "its secret can be read" if row["sets"] else "its directory exists; its login was not checked"


def _state(row: Mapping[str, Any]) -> str:
    if row["problem"]:
        return "has a problem"
    until = row["until"]
    return str(row["state"]) if until is None else f"{row['state']} until {until.astimezone():%Y-%m-%d %H:%M}"


def _source(row: Mapping[str, Any]) -> str:
    return f"{row['source']} → {row['sets']}" if row["sets"] else str(row["source"])
