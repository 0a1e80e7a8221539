"""Write the pictures: ``python -m tests.pictures``."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from tests.pictures.example_crew import DIRECTORY, draw_pictures


def main() -> None:
    """Write specs/pictures/*.svg. The times in the pictures are UTC."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as directory:
        DIRECTORY.mkdir(exist_ok=True)
        for name, svg, _, _ in draw_pictures(Path(directory)):
            (DIRECTORY / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
