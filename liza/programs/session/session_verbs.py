"""What a shim needs to run the commands of its session that come from inside a box."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from liza.box.box import START_ERRORS
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.programs.presets.session_environment import UNATTENDED_VARIABLES
from liza.system import command_socket
from liza.system.boxed_calls import CONFINED

FROM_CLIENT: Final = ("COLUMNS", "TERM", "NO_COLOR", "LANG", "TZ")
"""Variables of such a command that the calling process in the box sets: they change only how its output looks."""
_RUN_DIRECTLY: Final = "import sys; from liza.cli.entry_points import liza; sys.exit(liza())"


class SessionVerbs(Value):
    """Launch data of a shim. It is never written to a file: ``env`` has the values of the supervisor's variables.

    ``root``: directory of the commands. ``names``: variables of ``env`` that the client sets. ``server`` and
    ``installation``: the command server. ``argv``: what runs a command without it. ``api``: the worker API's socket.
    ``start_errors``: beginnings of a line of output that tells that the box could not start the program.
    """

    root: str
    env: dict[str, str]
    names: tuple[str, ...]
    server: str
    installation: str
    argv: tuple[str, ...]
    api: str
    start_errors: tuple[str, ...] = START_ERRORS


def describe_verbs(
    paths: Paths, outside: Mapping[str, str], session: Mapping[str, str], session_id_env: str
) -> SessionVerbs:
    """Return how the commands of a session run: with the variables ``outside``, those of the supervisor, and who calls.

    ``session`` is the environment of the session, ``session_id_env`` the variable in which its program tells its tools
    the id of the conversation; empty if the program sets no such variable.
    """
    own = {name: session[name] for name in ("LIZA_AGENT_ID", "LIZA_RUN", "LIZA_ROOT", "LIZA_TASK") if name in session}
    # No program starts that an agent could use, such as a pager at a terminal of the agent's own.
    env = {**outside, **UNATTENDED_VARIABLES, **own, CONFINED: "yes"}
    if "LIZA_TASK" not in own:
        env.pop("LIZA_TASK", None)
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    return SessionVerbs(
        root=str(paths.root),
        env=env,
        names=(*FROM_CLIENT, *((session_id_env,) if session_id_env else ())),
        server=os.fsdecode(command_socket.find_socket(variables)),
        installation=os.fsdecode(command_socket.identify_installation()),
        argv=(sys.executable, "-P", "-c", _RUN_DIRECTLY),
        api=str(paths.api_socket),
    )
