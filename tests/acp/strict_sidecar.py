"""The sidecar with guards that refuse every command with the word "forbidden", and fail for one with "undecidable"."""

from __future__ import annotations

import sys

from liza.programs.session.run_directory import RunDir
from liza.rules.value_classes import replace
from liza.sidecar.__main__ import main
from liza.sidecar.surfaces import WorkerSurfaces, connect_surfaces
from liza.worker.api_answers import AuthorizeAnswer
from liza.worker.api_requests import AuthorizeRequest


def connect(run_dir: RunDir) -> WorkerSurfaces:
    def authorize(request: AuthorizeRequest) -> AuthorizeAnswer:
        command = request.input["command"]
        if "undecidable" in command:
            raise ValueError("no parser")
        return AuthorizeAnswer(allowed="forbidden" not in command, reason="it is FORBIDDEN: write a note instead")

    return replace(connect_surfaces(run_dir), authorize=authorize)


if __name__ == "__main__":
    sys.exit(main(connect))
