"""The sidecar with guards that allow everything, except a command with "forbidden", and fail for "undecidable"."""

from __future__ import annotations

import sys

from liza.api.acp.__main__ import main
from liza.api.acp.turns import WorkerSurfaces, connect_surfaces
from liza.guards.session_guards import AuthorizeAnswer, AuthorizeRequest
from liza.model.value_classes import replace
from liza.programs.session.run_directory import RunDir


def connect(run_dir: RunDir, directory: str) -> WorkerSurfaces:
    def authorize(request: AuthorizeRequest) -> AuthorizeAnswer:
        command = str(request.input.get("command"))
        if "undecidable" in command:
            raise ValueError("no parser")
        return AuthorizeAnswer(allowed="forbidden" not in command, reason="it is FORBIDDEN: write a note instead")

    return replace(connect_surfaces(run_dir, directory), authorize=authorize)


if __name__ == "__main__":
    sys.exit(main(connect))
