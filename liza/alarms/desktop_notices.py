"""Notices of the desktop, through ``notify-send`` or, if that is not installed, through ``gdbus``."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path

from liza.model.errors import Missing
from liza.system import program_path

_INSTALL = "sudo apt install libnotify-bin"
_SERVICE = "org.freedesktop.Notifications"


def build_command(title: str, text: str) -> list[str]:
    """Return the command that shows a notice. Raises Missing if no program can."""
    # Services of the desktop read the body as markup: text of an agent must not become a link.
    body = html.escape(text, quote=False)
    try:
        return [program_path.find_program("notify-send"), "--app-name=liza", "--", title, body]
    except Missing:
        pass
    try:
        program = program_path.find_program("gdbus")
    except Missing:
        raise Missing("the desktop cannot be reached: neither notify-send nor gdbus is installed", _INSTALL) from None
    call = [program, "call", "--session", "--timeout", "10", "--dest", _SERVICE]
    call += ["--object-path", "/org/freedesktop/Notifications", "--method", f"{_SERVICE}.Notify"]
    return [
        *call,
        _quote("liza"),
        "uint32 0",
        _quote(""),
        _quote(title),
        _quote(body),
        "@as []",
        "@a{sv} {}",
        "int32 -1",
    ]


def require_desktop(environ: Mapping[str, str]) -> None:
    """Raise Missing if there is no session bus, or no program that reaches its notification service."""
    build_command("", "")
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if not environ.get("DBUS_SESSION_BUS_ADDRESS") and not (runtime and os.path.lexists(Path(runtime) / "bus")):
        raise Missing("the desktop cannot be reached: DBUS_SESSION_BUS_ADDRESS is not set", "liza watch --help")


def _quote(text: str) -> str:
    """Return a string in the text format of GVariant."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
