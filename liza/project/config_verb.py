"""config get · config set: read and change one setting of the board."""

from __future__ import annotations

import json
import shlex
from typing import Any

from liza.board.contract import Board
from liza.config import confirmed_settings
from liza.config.rules import setting_values, settings
from liza.config.rules.setting_values import SettingValue
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.errors import Refused
from liza.model.value_classes import Value
from liza.programs.presets import preset_table
from liza.text.redaction import describe_secrets


class Settings(Value):
    """Values of settings. One whose value on the board is not in effect is ``unconfirmed``."""

    settings: tuple[SettingValue, ...]


def get_settings(board: Board, name: str | None) -> Settings:
    """Return all settings, or one. Raises UsageError."""
    in_effect, written = board.read().config, board.read_as_written().config
    if name is None:
        return Settings(tuple(setting_values.list_settings(in_effect, written)))
    return Settings((setting_values.get_setting(in_effect, written, name),))


def set_setting(crew: Crew, name: str, text: str | None) -> Result:
    """Change a setting; it counts as confirmed. ``text`` None: back to its default. For people.

    Raises UsageError, Refused.
    """
    by = require_person(crew, planner=False)
    setting_values.check_name(name)
    outer, _, inner = name.partition(".")
    if outer == "programs" and inner and text is not None:
        preset_table.load_presets(crew.paths).resolve(text, f"liza config set {name}")
    if inner:
        _refuse_unconfirmed(crew, outer)
    with crew.change(by, f"config {name}") as tx:
        tx.state = setting_values.change_setting(tx.state, name, text)
    after = tx.state.config
    if outer in settings.NEEDS_CONFIRMATION:
        # Also if the board has this value already, because it was edited from outside.
        value = settings.confirmable_values(after)[outer]
        confirmed_settings.confirm_settings(crew.paths, {outer: value}, tx.before.config)
    setting = setting_values.get_setting(after, after, name)
    result = "unchanged" if after == tx.before.config else "changed"
    details = {"name": name, "value": setting.value, "default": setting.default}
    remarks = describe_secrets(tx.before.config, after)
    return Result(result, None, None, "", details, f"config.{name} is {format_value(setting.value)}", remarks)


def _refuse_unconfirmed(crew: Crew, outer: str) -> None:
    """Raise Refused if other values of the same setting are unconfirmed: this change would confirm them, too."""
    for setting in confirmed_settings.find_unconfirmed(crew.paths, crew.board.read_as_written()) or ():
        if setting.key == outer:
            raise Refused(setting.description, f"liza doctor --accept {shlex.quote(outer)}")


def format_value(value: Any) -> str:
    """Return a value as `config set` reads it: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
