"""Loaded by the commands under test at their start: the defence that the test does without is off in them, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if os.environ.get("ABLATION_WITHOUT"):
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from tests.ablation import defences, switches

    switches.arm(defences.TABLE[os.environ["ABLATION_WITHOUT"]].switches)
