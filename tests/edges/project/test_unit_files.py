"""The unit files of examples/systemd, as systemd reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[3] / "examples" / "systemd"


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", ["liza-host@shop.service", "liza-agent@coder-1.service"])
def test_systemd_accepts_the_unit_files(unit: str, tmp_path: Path) -> None:
    for path in UNITS.glob("*.service"):
        text = path.read_text().replace("/usr/local/bin/", f"{Path(sys.executable).parent}/")
        (tmp_path / path.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
