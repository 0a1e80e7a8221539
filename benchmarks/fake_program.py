"""An agent program as real ones are, with the manners that a plan names: slow, deaf, asking, dying, forgetful.

``python -I -S fake_program.py PLAN.json [WORDS...] [PROMPT]``. What happens to it is written to the plan's ``log``, a
line for each fact, with the time of the clock that nobody can set, which is the same for every process of a machine.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path
from typing import Any

DOTS = 0.2  # seconds between two signs of life
PASTED = re.compile("\x1b\\[200~(.*?)\x1b\\[201~", re.DOTALL)


class Fake:
    """One program. All of its manners stand in ``plan``."""

    def __init__(self, plan: dict[str, Any], words: list[str]) -> None:
        self.plan = plan
        self.words = words
        self.began = time.monotonic()
        self.contexts = ""
        self.draft = ""
        self.said: list[str] = []
        self.enters = 0
        self.pastes = 0

    def note(self, what: str, **more: object) -> None:
        line = json.dumps({"what": what, "time": time.monotonic(), **more}) + "\n"
        with open(self.plan["log"], "a") as log:  # noqa: PTH123 - pathlib would double the time to start
            log.write(line)

    def show(self, text: str) -> None:
        os.write(1, text.encode())

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        # Whatever becomes of who started it, it does not stay.
        signal.alarm(300)
        self.note("start")
        if self.plan["dies_once"]:
            mark = Path(self.plan["log"]).with_name("died")
            self.plan["dies"] = None if mark.exists() else self.plan["dies"]
            mark.touch()
        if not self.plan["terminal"]:
            self.headless()
        self.pass_time(self.plan["starts"])
        if not self.plan["raw"]:
            self.by_line()
        if self.plan["dialog"]:
            self.ask()
        self.hook("SessionStart")
        if self.plan["deaf_prompt"]:
            # The line where one types is there, and nobody listens yet.
            self.show("\x1b[?2004h")
            self.draw()
            self.pass_time(self.plan["deaf_prompt"], silent=True)
        tty.setraw(0, termios.TCSAFLUSH)
        self.show("\x1b[?2004h")
        self.draw()
        self.note("ready")
        if self.plan["prompt"] == "arg":
            self.turn(self.words[-1])
        while True:
            self.listen()

    def pass_time(self, seconds: float, silent: bool = False) -> None:
        """Deaf, and talking: what is typed meanwhile is lost when it begins to listen."""
        if not silent:
            self.show("Loading\r\n")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.die_when_it_is_time()
            time.sleep(min(left, DOTS))
            if not silent and self.plan["talks"]:
                self.show(".")
        self.show("\r\n")

    def die_when_it_is_time(self) -> None:
        dies = self.plan["dies"]
        if dies is not None and time.monotonic() - self.began >= dies:
            self.show("panic: cannot go on\r\n")
            self.note("dies")
            os._exit(1)

    def ask(self) -> None:
        """A question that only a person may answer, whose mark is the prompt's."""
        tty.setraw(0, termios.TCSAFLUSH)
        self.show("\x1b[?2004h\x1b[2J\x1b[HDo you trust the files in this folder?\r\n\r\n")
        self.show("\u276f 1. Yes, proceed\r\n  2. No, exit\r\n\r\nEnter to confirm")
        self.note("dialog")
        while True:
            got = os.read(0, 65536)
            if not got:
                # The terminal is gone.
                os._exit(0)
            self.note("answered", text=got.decode(errors="replace")[:80])

    # ── a session without a terminal ──────────────────────────────────────────────────────────────────────────────

    def headless(self) -> None:
        self.pass_time(self.plan["starts"])
        self.hook("SessionStart")
        self.note("ready")
        carried = {"arg": lambda: self.words[-1], "stdin": sys.stdin.read, "none": str}[self.plan["prompt"]]
        self.turn(carried())
        while True:
            time.sleep(1)

    # ── a session that reads lines ────────────────────────────────────────────────────────────────────────────────

    def by_line(self) -> None:
        termios.tcflush(0, termios.TCIFLUSH)
        self.show("you> ")
        self.note("ready")
        for line in sys.stdin:
            self.note("submitted", text=line.strip())
            self.turn(line.strip())
            self.show("you> ")

    # ── a session that draws its screen ───────────────────────────────────────────────────────────────────────────

    def draw(self, state: str = "") -> None:
        lines = "".join(f"{one}\r\n" for one in self.said[-9:])
        self.show("\x1b[2J\x1b[H" + lines)
        draft = self.draft.replace("\n", "\r\n  ")
        if state:
            self.show(state)
        elif self.plan["shows_prompt"]:
            self.show("\u256d" + "\u2500" * 60 + "\u256e\r\n\u276f\u00a0" + draft + "\r\n? for shortcuts")
        else:
            self.show("  what next\r\n  " + draft)

    def listen(self) -> None:
        self.die_when_it_is_time()
        if not select.select([0], [], [], 0.05 if self.plan["dies"] is not None else None)[0]:
            return
        got = os.read(0, 65536).decode(errors="replace")
        while "\x1b[200~" in got and "\x1b[201~" not in got:
            got += os.read(0, 65536).decode(errors="replace")
        for paste in PASTED.findall(got):
            self.pastes += 1
            if self.pastes > self.plan["loses_pastes"]:
                self.draft += paste.replace("\r", "\n")
        for key in PASTED.sub("", got):
            if key != "\r":
                self.draft += key
                continue
            self.enters += 1
            if self.draft and self.enters > self.plan["loses_enters"]:
                text, self.draft = self.draft, ""
                self.enters = 0
                self.note("submitted", text=text)
                self.turn(text)
        self.draw()

    # ── its model ─────────────────────────────────────────────────────────────────────────────────────────────────

    def turn(self, text: str) -> None:
        """Think about ``text``, with what stands in the instructions file and what hooks said."""
        self.said.append("\u276f " + text.splitlines()[0][:60] if text else "")
        self.hook("UserPromptSubmit")
        file = Path("AGENTS.md")
        seen = text + self.contexts + (file.read_text() if file.exists() else "")
        self.note("turn", text=text, work=self.plan["work"] in seen, note=self.plan["note"] in text + self.contexts)
        if self.plan["acknowledges"]:
            told = subprocess.run(["liza", "ready"], capture_output=True, text=True, check=False)
            self.note("acknowledged", code=told.returncode, note=self.plan["note"] in told.stdout)
        self.work()
        self.said.append("done")
        self.note("idle")
        push = self.hook("Stop")
        if push:
            self.turn(push)
        elif self.plan["terminal"] and self.plan["raw"]:
            self.draw()

    def work(self) -> None:
        """Be busy: nothing that is typed meanwhile is heard."""
        busy, self.plan["busy"] = self.plan["busy"], 0.0
        end = time.monotonic() + busy
        while (left := end - time.monotonic()) > 0:
            if self.plan["raw"]:
                self.draw(f"Working ({left:.0f} s)")
            else:
                self.show(".")
            time.sleep(min(left, DOTS))
        if busy and self.plan["terminal"]:
            termios.tcflush(0, termios.TCIFLUSH)

    def hook(self, event: str) -> str:
        """Say ``event`` to the hooks that were given; what one of them wants the program to go on with."""
        if not self.plan["fires"]:
            return ""
        settings = json.loads(Path(self.words[self.words.index("--settings") + 1]).read_text())
        said = json.dumps({"session_id": "s-1", "source": "startup", "hook_event_name": event})
        push = ""
        for entry in settings["hooks"].get(event, []):
            for one in entry["hooks"]:
                done = subprocess.run(
                    ["/bin/sh", "-c", one["command"]], input=said, capture_output=True, text=True, check=False
                )
                answer = json.loads(done.stdout) if done.stdout.strip() else {}
                self.contexts += answer.get("hookSpecificOutput", {}).get("additionalContext", "")
                push = answer.get("reason", push)
        return push


if __name__ == "__main__":
    Fake(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]).run()
