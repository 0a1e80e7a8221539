"""Write the pictures: ``python -m tests.pictures``."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from tests.pictures.drawing import draw
from tests.pictures.example_crew import DIRECTORY, PICTURES, TITLES, WIDTH, open_example


def main() -> None:
    """Write specs/pictures/*.svg. The times in the pictures are UTC."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as directory, open_example(Path(directory) / "shop") as crew:
        for name, print_output in PICTURES.items():
            DIRECTORY.mkdir(exist_ok=True)
            (DIRECTORY / f"{name}.svg").write_text(
                draw(name, TITLES[name], print_output(crew), WIDTH), encoding="utf-8"
            )


if __name__ == "__main__":
    main()
