"""A thousand start-ups of programs with bad manners, through Liza's own start path.

``python benchmarks/startup.py [--count N] [--only KIND] [--defences N] [--defence NAME] [--at-once N]`` prints a table
by kind, and then one with each defence switched off in turn; of both, 0 leaves the table out. ``--json`` prints only
the times. It needs git and tmux.

Each start-up is a crew of its own: a repository, a board, a supervisor as ``liza-agent`` is one, a session under its
shim, a terminal in a tmux server of its own, and ``fake_program.py`` in it. What is counted is what the program itself
wrote down, and what was asked of the terminal; nothing that Liza says about its own success.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from liza.briefs import inbox, note
from liza.briefs.instructions_file import BlockPlacement
from liza.briefs.rules import message_rules
from liza.briefs.rules.message_rules import MessageChannel
from liza.crew.crew import Crew, open_crew
from liza.model.errors import LizaError
from liza.programs import liveness
from liza.programs.session import run_directory, session_process
from liza.programs.terminal import keyboard, readiness, screens, tmux
from liza.programs.terminal.keyboard import Enter, NotSent, Paste, Sent
from liza.programs.terminal.pane import Pane
from liza.supervisor import main as supervisor
from liza.supervisor import observe
from liza.supervisor import session_files as worktree_files
from liza.supervisor.loop import StopRequest, Supervisor
from liza.supervisor.message_carrier import MessageCarrier
from liza.system.clock import SystemClock

FAKE = Path(__file__).resolve().with_name("fake_program.py")
AGENT, RUN = "coder-1", "coder-1.1"
WORK, NOTE = "the parcel with the number 7f3a", "mind the step with the number 9c1e"
DEADLINE, SHORT = 60.0, 25.0  # seconds for one start-up, and for one without a defence, which may never come to an end
LOOK = 0.05  # seconds between two looks at what the program wrote down
BELIEVED = 8.0  # seconds for which a terminal is taken for its program
BLIND = 3.0  # seconds of the fixed delay that evidence takes the place of
DIALOG = "Do you trust the files in this folder?"
HASTY = {"retry_backoffs": (0.5, 1.0, 2.0), "acknowledgment_timeout": 1.0}


@dataclass(frozen=True)
class Kind:
    """Programs with one manner. ``share`` are those of a thousand; ``manners`` is the plan for one, drawn by chance.

    ``lives``: it can come to work at all. ``can``: it says so when it has read its work. ``note``: a person has
    something to say while it is at its first turn. ``known``: its row names its prompt.
    """

    name: str
    share: int
    manners: Callable[[random.Random], dict[str, Any]] = lambda chance: {}
    lives: bool = True
    can: bool = True
    note: bool = False
    prompt: str = "none"
    terminal: bool = True
    hooks: bool = False
    known: bool = True


def late(chance: random.Random) -> dict[str, Any]:
    return {"starts": chance.uniform(0.3, 5.0)}


def dying(chance: random.Random) -> dict[str, Any]:
    """Most before they show their prompt, some just behind it."""
    starts = chance.uniform(0.3, 3.0)
    return {"starts": starts, "dies": starts * chance.uniform(0.1, 1.0) + chance.choice([0.0, 0.0, 0.6])}


KINDS = (
    Kind("waits at its prompt", 90),
    Kind("slow: 0.3 to 5 s", 90, late),
    Kind("deaf and talking until then", 90, lambda chance: {**late(chance), "talks": True}),
    Kind("deaf behind its prompt", 40, lambda chance: {"deaf_prompt": chance.uniform(0.2, 1.0)}),
    Kind("a prompt that no row names", 60, lambda chance: {**late(chance), "shows_prompt": False}, known=False),
    Kind("reads lines", 60, lambda chance: {**late(chance), "raw": False}, known=False),
    Kind("loses one Enter, or two", 60, lambda chance: {"loses_enters": chance.choice([1, 1, 2])}),
    Kind("loses the first paste", 20, lambda chance: {"loses_pastes": 1}),
    Kind("asks whether to trust", 50, lambda chance: {**late(chance), "dialog": True}, lives=False),
    Kind("asks, with its prompt given", 20, lambda chance: {"dialog": True}, lives=False, prompt="arg"),
    Kind("dies early", 60, dying, lives=False),
    Kind("dies early, and lives the next time", 10, lambda chance: {**dying(chance), "dies_once": True}),
    Kind("never says that it read it", 60, late, can=False),
    Kind("hooks fire", 60, late, hooks=True),
    Kind("prompt given", 50, late, prompt="arg"),
    Kind("prompt given, hooks fire", 40, late, prompt="arg", hooks=True),
    Kind("busy 3 to 8 s, hooks, a note", 40, lambda c: {"busy": c.uniform(3, 8)}, note=True, prompt="arg", hooks=True),
    Kind("busy 3 to 8 s, no hooks, a note", 40, lambda c: {"busy": c.uniform(3, 8)}, note=True, prompt="arg"),
    Kind("hooks that never fire, a note", 20, lambda c: {"fires": False}, note=True, prompt="arg", hooks=True),
    Kind("never answers a note", 10, lambda chance: {}, can=False, note=True, prompt="arg"),
    Kind("no terminal, prompt given", 10, late, prompt="arg", terminal=False),
    Kind("no terminal, prompt on stdin", 10, late, prompt="stdin", terminal=False),
    Kind("no terminal, only its brief", 10, late, prompt="none", terminal=False),
)


@dataclass(frozen=True)
class Order:
    """One start-up to make: of which kind, with which luck, without which defence."""

    kind: str
    number: int
    place: str
    without: str = ""


@dataclass
class Result:
    """What became of one start-up. Times are seconds; ``delivered`` is from when it listened to when it had it."""

    kind: str
    lived: bool = True
    visible: bool = False
    attempts: int | None = None
    acknowledged: bool = False
    note_acknowledged: bool = False
    person_told: bool = False
    reason: str = ""
    into_dialog: int = 0
    into_dead: int = 0
    doubled: bool = False
    delivered: list[float] = field(default_factory=list)
    took: float = 0.0
    error: str = ""
    said: list[str] = field(default_factory=list)


# ── one start-up ─────────────────────────────────────────────────────────────────────────────────────────────────────


def start_up(order: Order) -> Result:
    """Make one, from a fresh crew to the end of its supervisor."""
    kind = next(one for one in KINDS if one.name == order.kind)
    chance = random.Random(f"{order.kind} {order.number}")
    home = Path(tempfile.mkdtemp(prefix="s", dir=order.place))
    result = Result(order.kind, lived=kind.lives)
    start = time.monotonic()
    try:
        with switched_off(order.without):
            _run(kind, chance, home, Path(order.place), SHORT if order.without else DEADLINE, result)
    except Exception as error:  # noqa: BLE001 - one that fails is a line in the table and not the end of it
        result.error = f"{type(error).__name__}: {error}"
    result.took = time.monotonic() - start
    shutil.rmtree(home, ignore_errors=True)
    return result


def _run(kind: Kind, chance: random.Random, home: Path, place: Path, limit: float, result: Result) -> None:
    root = home / "crew"
    shutil.copytree(place / "template", root, symlinks=True)
    log = home / "log"
    log.touch()
    _lay_out(kind, chance, root, home, log)
    crew = open_crew(root, SystemClock())
    if kind.note and not kind.can:
        _configure(crew, HASTY)
    os.chdir(root)
    typed: list[tuple[str, float]] = []
    seen: list[Supervisor] = []

    class Watched(Supervisor):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            seen.append(self)

    over = threading.Event()
    with replaced([(supervisor, "Supervisor", Watched), *_listening(typed)]):
        watcher = threading.Thread(target=_watch, args=(kind, crew, log, seen, over, limit), daemon=True)
        watcher.start()
        try:
            supervisor.supervise(crew, AGENT, "fake", result.said.append, terminal=kind.terminal)
        except LizaError as error:
            result.error = str(error)
        finally:
            over.set()
            watcher.join()
    os.chdir(place)
    _judge(kind, crew, facts_of(log), typed, result)
    with suppress(LizaError):
        tmux.close_all_panes(root)


def _lay_out(kind: Kind, chance: random.Random, root: Path, home: Path, log: Path) -> None:
    """The plan of the program, and its row."""
    plan = {
        "log": str(log), "work": WORK, "note": NOTE, "terminal": kind.terminal, "prompt": kind.prompt,
        "starts": chance.uniform(0.3, 1.0), "raw": True, "dialog": False, "deaf_prompt": 0.0, "dies": None,
        "dies_once": False, "talks": chance.random() < 0.5,
        "shows_prompt": True, "loses_enters": 0, "loses_pastes": 0, "busy": 0.0,
        "fires": kind.hooks, "acknowledges": kind.can,
        **kind.manners(chance),
    }  # fmt: skip
    (home / "plan.json").write_text(json.dumps(plan))
    row = {
        "command": sys.executable,
        "args": ["-I", "-S", str(FAKE), str(home / "plan.json")],
        "ready_prompt": "\u276f " if kind.known else "",
    }
    lines = ["[programs.fake]", *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in row.items())]
    for mode in ("interactive", "headless"):
        lines += [f"[programs.fake.{mode}]", f'prompt = "{kind.prompt}"']
    lines += ["[programs.fake.permissions]", "none = true"]
    if kind.hooks:
        lines += ["[programs.fake.hooks]", 'provider = "claude"']
    lines += ["[[programs.fake.dialogs]]", 'kind = "trust"', f"match = {json.dumps(DIALOG)}"]
    (root / ".liza" / "programs.toml").write_text("\n".join(lines) + "\n")


def _configure(crew: Crew, delivery_settings: dict[str, Any]) -> None:
    """Patience that is over within a benchmark."""
    with crew.change("human:bench", "edit") as tx:
        config = tx.state.config
        how = msgspec.structs.replace(config.delivery, **delivery_settings)
        tx.state = msgspec.structs.replace(tx.state, config=msgspec.structs.replace(config, delivery=how))


def _listening(typed: list[tuple[str, float]]) -> list[tuple[Any, str, Any]]:
    """Have everything that is put into a terminal written down, with its time."""
    paste, enter = Pane.paste, Pane.press_enter

    def heard_paste(pane: Pane, text: str) -> None:
        typed.append(("paste", time.monotonic()))
        paste(pane, text)

    def heard_enter(pane: Pane) -> None:
        typed.append(("enter", time.monotonic()))
        enter(pane)

    return [(Pane, "paste", heard_paste), (Pane, "press_enter", heard_enter)]


def _watch(kind: Kind, crew: Crew, log: Path, seen: list[Supervisor], over: threading.Event, limit: float) -> None:
    """Say the note when it is time, and have the supervisor leave when all is known."""
    end, told = time.monotonic() + limit, not kind.note
    while not over.wait(LOOK):
        facts = facts_of(log)
        if not told and any(one["what"] == ("acknowledged" if kind.can else "turn") for one in facts):
            with suppress(LizaError):
                note.send_note(crew, NOTE, AGENT)
                told = True
        if seen and (time.monotonic() > end or (told and _is_over(kind, crew, facts))):
            seen[0].events.put(StopRequest(force=True))
            return


def _is_over(kind: Kind, crew: Crew, facts: Sequence[dict[str, Any]]) -> bool:
    if "asks" in kind.name:
        return crew.run_dir(RUN).read_question() is not None
    if not kind.lives:
        return any(one["what"] == "dies" for one in facts) and settled(crew)
    ends = [one for one in facts if one["what"] == "idle"]
    if not ends or (kind.can and not _sentinel(crew)):
        return False
    waiting = inbox.list_pending(crew.paths, AGENT)
    if kind.note and not kind.can:
        return any(one.stage is message_rules.MessageStage.TOLD for one in waiting)
    if kind.note and not any(one.get("note") for one in facts):
        return False
    # One more look, in which a second delivery of the same would be seen.
    return not waiting and time.monotonic() - ends[-1]["time"] > 2 * LOOK


def settled(crew: Crew) -> bool:
    return crew.run_dir(RUN).is_concluded()


def facts_of(log: Path) -> list[dict[str, Any]]:
    """What the program wrote down."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def _sentinel(crew: Crew) -> bool:
    """Whether the program itself showed that it has its work: what Liza saw on its screen is no word of its own."""
    runs = run_directory.list_runs(crew.paths, AGENT)
    found = crew.run_dir(runs[-1]).read_sentinel() if runs else None
    return found is not None and (found.evidence == "liza ready" or found.evidence.startswith("hook"))


def _judge(kind: Kind, crew: Crew, facts: list[dict[str, Any]], typed: list[tuple[str, float]], result: Result) -> None:
    """What the program wrote down, against what was typed."""
    turns = [one for one in facts if one["what"] == "turn"]
    result.visible = bool(turns) and turns[0]["work"]
    result.into_dialog = sum(1 for one in facts if one["what"] == "answered")
    result.into_dead = sum(1 for _, when in typed if _is_dead(facts, when))
    result.acknowledged = _sentinel(crew)
    mail = [*inbox.list_done(crew.paths, AGENT), *inbox.list_pending(crew.paths, AGENT)]
    work = [one for one in mail if one.sender == message_rules.LIZA]
    notes = [one for one in mail if one.sender != message_rules.LIZA]
    starts = sum(1 for one in facts if one["what"] == "start")
    tries = [one.attempts for one in (*work[-1:], *(notes if kind.can else ()))]
    result.attempts = starts - 1 + max(tries, default=1)
    result.note_acknowledged = any(one.by not in (None, "typed") for one in notes)
    alerts = crew.paths.alerts.read_text() if crew.paths.alerts.exists() else ""
    result.person_told = "message_unread" in alerts or "supervisor_left" in alerts
    if "question" in alerts:
        result.reason = alerts.strip()
    elif settled(crew):
        result.reason = (crew.run_dir(RUN).path / "settled").read_text().strip()
    submitted = [one for one in facts if one["what"] == "submitted"]
    result.doubled = sum(1 for one in submitted if NOTE not in one["text"]) > 1
    _deliveries(kind, facts, submitted, turns, result)


def _is_dead(facts: list[dict[str, Any]], when: float) -> bool:
    """Whether the program was dead at a moment, by its own last words."""
    last = [one["what"] for one in facts if one["time"] <= when and one["what"] in ("start", "dies")]
    return last[-1:] == ["dies"]


def _deliveries(
    kind: Kind,
    facts: list[dict[str, Any]],
    submitted: list[dict[str, Any]],
    turns: list[dict[str, Any]],
    result: Result,
) -> None:
    """How long after it listened the program had what was for it."""
    listens = [one["time"] for one in facts if one["what"] == "ready"]
    if kind.terminal and kind.prompt == "none" and listens and submitted:
        had = submitted[0]["time"]
        result.delivered.append(had - max(one for one in listens if one <= had))
    if kind.note:
        had = [one["time"] for one in (*submitted, *turns) if NOTE in one["text"]]
        free = [one["time"] for one in facts if one["what"] == "idle"]
        if had and free and min(had) > free[0]:
            result.delivered.append(min(had) - free[0])


# ── defences, each of which can be switched off here and nowhere else ────────────────────────────────────────────────


@contextmanager
def replaced(what: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """These attributes have other values meanwhile."""
    what = list(what)
    before = [(where, name, getattr(where, name)) for where, name, _ in what]
    for where, name, value in what:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in reversed(before):
            setattr(where, name, value)


def no_file() -> list[tuple[Any, str, Any]]:
    """Nothing in the instructions file: the prompt says where the assignment lies, and no more."""
    whole = worktree_files.WorktreeFiles._write_brief

    def bare(self: worktree_files.WorktreeFiles, *args: Any) -> tuple[str, tuple[str, ...]]:
        whole(self, *args)
        return args[3].read_prompt() or "", ()

    return [
        (worktree_files.instructions_file, "write_block", lambda *args: BlockPlacement(None, "switched off")),
        (worktree_files.WorktreeFiles, "_write_brief", bare),
    ]


def fixed_delay() -> list[tuple[Any, str, Any]]:
    """Three seconds after the start it is typed, whatever is to be seen."""
    began: dict[Path, float] = {}

    def not_now(screen: screens.Screen, *args: object) -> str | None:
        over = screen.time - began.setdefault(Path.cwd(), screen.time) >= BLIND
        return None if over else "the delay is not over"

    return [(keyboard, "_reason_to_wait", not_now), *no_kernel()]


def no_kernel() -> list[tuple[Any, str, Any]]:
    """A prompt on the screen is enough."""
    return [(keyboard, "PROMPT_OVERRIDE", 0.0)]


def no_event() -> list[tuple[Any, str, Any]]:
    """Nobody hears that the program drew something: it is looked at once a second."""

    @contextmanager
    def deaf(pane: Pane) -> Iterator[Callable[[float], None]]:
        yield lambda seconds: time.sleep(1.0)

    return [(Pane, "watch_changes", deaf)]


def no_dialogs() -> list[tuple[Any, str, Any]]:
    """No question on a screen is seen as one."""
    unseen = SimpleNamespace(
        **{**vars(screens), "find_question": lambda *args: None, "_prompt_choice": lambda *args: None}
    )
    return [
        (keyboard, "screens", unseen),
        (readiness, "screens", unseen),
        (screens, "_prompt_choice", lambda *args: None),
    ]


def no_proof() -> list[tuple[Any, str, Any]]:
    """Pasted, one Enter, and taken for sent."""

    def typed(text: str, preset: Any, limit: float, patterns: Sequence[str]) -> keyboard.TypingPolicy:
        screen = yield from keyboard._wait_until_typable(text, preset, limit, patterns)
        if isinstance(screen, NotSent):
            return screen
        yield Paste(keyboard.strip_keys(text))
        yield Enter()
        return Sent(1)

    return [(keyboard, "plan_typing", typed)]


def no_retries() -> list[tuple[Any, str, Any]]:
    """One try, and nothing after it."""
    step = message_rules._step

    def once(message: message_rules.Message, *args: Any) -> message_rules.DeliveryStep:
        return message_rules.TryLater("tried once") if message.attempts else step(message, *args)

    return [(message_rules, "_step", once)]


def no_acknowledgment() -> list[tuple[Any, str, Any]]:
    """What was typed counts as read."""
    came = MessageCarrier._record_outcome

    def believed(self: MessageCarrier, typed: Any) -> None:
        came(self, typed)
        if isinstance(typed.outcome, Sent):
            now = self.crew.clock.now()
            ids = (typed.message.id,)
            inbox.acknowledge(self.crew.paths, self.agent, ids, typed.run, "typed", now, MessageChannel.TERMINAL)

    return [(MessageCarrier, "_record_outcome", believed)]


def terminal_lives() -> list[tuple[Any, str, Any]]:
    """As long as there is a terminal, its program is taken to live: for some seconds, so that it ends at all."""
    look, screen = liveness.read_state, Pane.screen

    def kept(path: Path) -> liveness.ProcessState:
        found = look(path)
        if not isinstance(found, liveness.EndedSession) or not (path / tmux.ADDRESS_FILE).exists():
            return found
        if time.time() - (path / "exit.json").stat().st_mtime > BELIEVED:
            return found
        return msgspec.json.decode((path / "session.json").read_bytes(), type=liveness.RunningSession)

    def shown(pane: Pane, now: float) -> screens.Screen:
        from liza.model.value_classes import replace

        return replace(screen(pane, now), is_alive=True, foreground_argv=())

    # Of a shim that is over nothing hears the end but the loop, which is told to believe the terminal.
    seen = SimpleNamespace(**{**vars(session_process), "read_state": kept})
    alive = (Pane, "is_program_alive", lambda pane: True)
    return [(observe, "session_process", seen), (readiness, "session_process", seen), (Pane, "screen", shown), alive]


def all_of_it() -> list[tuple[Any, str, Any]]:
    """As described: no file, a fixed delay, typed once, blind, into whatever is there."""
    return [
        *no_file(), *fixed_delay(), *no_dialogs(), *no_proof(), *no_retries(), *no_acknowledgment(), *terminal_lives(),
    ]  # fmt: skip


@dataclass(frozen=True)
class Defence:
    """What is switched off, the kinds that it is for, and the figure that falls without it."""

    name: str
    off: Callable[[], list[tuple[Any, str, Any]]]
    kinds: tuple[str, ...]
    figure: str


LATE = ("slow: 0.3 to 5 s", "deaf and talking until then")
DEFENCES = (
    Defence("the brief in its file", no_file, ("slow: 0.3 to 5 s", "no terminal, only its brief"), "visible"),
    Defence("evidence instead of a fixed delay", fixed_delay, LATE, "visible"),
    Defence("evidence instead of a fixed delay", fixed_delay, ("waits at its prompt",), "median"),
    Defence("the kernel: somebody waits for keys", no_kernel, ("deaf behind its prompt",), "first"),
    Defence("hearing that it drew something", no_event, ("waits at its prompt", "slow: 0.3 to 5 s"), "median"),
    Defence("a look for dialogs", no_dialogs, ("asks whether to trust",), "dialog"),
    Defence("proof of arrival, and a second Enter", no_proof, ("loses one Enter, or two",), "visible"),
    Defence("back-off and another try", no_retries, ("loses the first paste",), "visible"),
    Defence("acknowledgment", no_acknowledgment, ("never answers a note",), "told"),
    Defence("the program's life, not the terminal's", terminal_lives, ("dies early",), "dead"),
    Defence("all of them at once", all_of_it, tuple(one.name for one in KINDS), "all"),
)


@contextmanager
def switched_off(name: str) -> Iterator[None]:
    """The defence of that name, and none other, does nothing meanwhile."""
    found = next((one for one in DEFENCES if one.name == name), None)
    with replaced(found.off() if found else []):
        yield


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Row:
    """The figures of some start-ups; a share is (how many, of how many)."""

    count: int
    visible: tuple[int, int]
    first: tuple[int, int]
    acknowledged: tuple[int, int]
    told: tuple[int, int]
    dialog: int
    dead: int
    delivered: tuple[float, ...]


def row(results: Sequence[Result]) -> Row:
    kinds = {one.name: one for one in KINDS}
    living = [one for one in results if one.lived]
    able = [one for one in living if kinds[one.kind].can]
    hopeless = [one for one in results if not one.lived or (kinds[one.kind].note and not kinds[one.kind].can)]
    return Row(
        count=len(results),
        visible=(sum(one.visible for one in living), len(living)),
        first=(sum(one.visible and one.attempts == 1 for one in living), len(living)),
        acknowledged=(sum(_read(one, kinds[one.kind]) for one in able), len(able)),
        told=(sum(_told(one, kinds[one.kind]) for one in hopeless), len(hopeless)),
        dialog=sum(one.into_dialog for one in results),
        dead=sum(one.into_dead for one in results),
        delivered=tuple(sorted(time for one in results for time in one.delivered)),
    )


def _read(one: Result, kind: Kind) -> bool:
    return one.acknowledged and (one.note_acknowledged or not kind.note)


def _told(one: Result, kind: Kind) -> bool:
    """Whether the true reason is there for a person: the dialog, the end, the message that nobody answered."""
    if kind.lives:
        return one.person_told
    return ("dialog" in one.reason) if "ask" in kind.name else ("exit 1" in one.reason)


FORM = "{:36} {:>5} {:>9} {:>9} {:>9} {:>9} {:>6} {:>5} {:>8} {:>8}"
HEAD = FORM.format("", "n", "visible", "first try", "acknowl.", "told", "dialog", "dead", "median", "p95")


def line(name: str, found: Row) -> str:
    times = found.delivered
    median = f"{statistics.median(times) * 1000:6.0f}ms" if times else "-"
    p95 = f"{times[min(len(times) - 1, int(len(times) * 0.95))] * 1000:6.0f}ms" if times else "-"
    shares = (_share(one) for one in (found.visible, found.first, found.acknowledged, found.told))
    return FORM.format(name, found.count, *shares, found.dialog, found.dead, median, p95)


def _share(found: tuple[int, int]) -> str:
    return f"{100 * found[0] / found[1]:.1f} %" if found[1] else "-"


def tell(results: Sequence[Result]) -> None:
    print(HEAD)
    for kind in KINDS:
        of_kind = [one for one in results if one.kind == kind.name]
        if of_kind:
            print(line(kind.name, row(of_kind)))
    print(line("in all", row(results)))
    print(FORM.format("elsewhere, as described", "", "50 %", "30 %", "0 %", "", "", "", "9.3 s", "blind"))
    print(FORM.format("wanted", "", "100 %", "> 95 %", "> 99 %", "100 %", 0, 0, "< 100ms", ""))
    doubled = sum(one.doubled for one in results)
    print(f"the same work was typed twice: {doubled}")
    _faults(results)


def _faults(results: Sequence[Result]) -> None:
    """What went wrong, told so that it can be looked into."""
    kinds = {one.name: one for one in KINDS}
    for one in results:
        kind = kinds[one.kind]
        bad = one.lived and (not one.visible or (kind.can and not _read(one, kind)))
        if one.error or bad or one.into_dialog or one.into_dead or one.doubled:
            last = [re.sub(r"\s+", " ", said)[:150] for said in one.said[-4:]]
            print(f"  {one.kind}: {one.error or one.reason or 'not settled'} ({one.took:.0f} s) {last}")


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────────────────


def orders(count: int, only: str, place: Path) -> list[Order]:
    """``count`` start-ups in the shares of the kinds, mixed."""
    kinds = [one for one in KINDS if only in one.name]
    whole = sum(one.share for one in kinds)
    made = []
    for kind in kinds:
        made += [Order(kind.name, number, str(place)) for number in range(max(1, round(count * kind.share / whole)))]
    random.Random(count).shuffle(made)
    return made


def carried_out(wanted: Sequence[Order], at_once: int) -> list[Result]:
    """All of them, ``at_once`` at a time. Where a process is ended from outside, what it was at is done again."""
    found: dict[int, Result] = {}
    while left := [number for number in range(len(wanted)) if number not in found]:
        with suppress(BrokenProcessPool):
            for number, result in _results(wanted, left, at_once):
                found[number] = result
                if len(found) % 100 == 0:
                    print(f"{len(found)} of {len(wanted)}", file=sys.stderr, flush=True)
    return [found[number] for number in range(len(wanted))]


def _results(wanted: Sequence[Order], left: Sequence[int], at_once: int) -> Iterator[tuple[int, Result]]:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(at_once, mp_context=context, initializer=ended_with, initargs=(os.getpid(),)) as pool:
        running = {pool.submit(start_up, wanted[number]): number for number in left}
        children = multiprocessing.active_children()
        try:
            for one in as_completed(running):
                yield running[one], one.result()
        except BaseException as error:
            codes = [child.exitcode for child in children if child.exitcode is not None]
            print(f"broken off ({type(error).__name__}, ended with {codes})", file=sys.stderr)
            for child in children:
                child.kill()
            raise


def ended_with(parent: int) -> None:
    """Have this process end when ``parent`` does, however that ends."""

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def swept(place: Path) -> None:
    """End what was left of start-ups that were broken off."""
    for directory in place.glob("s*/crew/.liza/run/*/*.*"):
        with suppress(LizaError, OSError):
            session_process.stop(directory, directory.name, directory.parents[3], 0)
            tmux.close_all_panes(directory.parents[3])


def with_each_off(count: int, named: str, at_once: int, place: Path) -> None:
    """Each defence in turn, on its own kinds, beside the same with all of them."""
    names = ("visible", "first", "acknowledged", "told", "dialog", "dead", "median")
    print(f"\nwithout one defence, {count} start-ups each{'':18} figure        with      without")
    for defence in [one for one in DEFENCES if named in one.name]:
        whole = sum(one.share for one in KINDS if one.name in defence.kinds)
        some = [
            Order(one.name, number, str(place))
            for one in KINDS
            if one.name in defence.kinds
            for number in range(max(1, round(count * one.share / whole)))
        ]
        random.Random(count).shuffle(some)
        off = [Order(one.kind, one.number, one.place, defence.name) for one in some]
        results = carried_out([*some, *off], at_once)
        for broken in {one.error for one in results if one.error}:
            print(f"  {defence.name}: {broken}")
        before, after = row(results[: len(some)]), row(results[len(some) :])
        for name in names if defence.figure == "all" else (defence.figure,):
            print(f"{defence.name:48} {name:12} {_figure(before, name):>9} {_figure(after, name):>12}")


def _figure(found: Row, name: str) -> str:
    value = getattr(found, name) if name != "median" else found.delivered
    if name == "median":
        return f"{statistics.median(value) * 1000:.0f} ms" if value else "-"
    return str(value) if isinstance(value, int) else _share(value)


@contextmanager
def world(place: Path) -> Iterator[None]:
    """A home and a tmux of its own, and a crew to copy."""
    home = place / "home"
    home.mkdir()
    for name in [one for one in os.environ if one.startswith(("LIZA_", "TMUX"))]:
        del os.environ[name]
    os.environ.update(HOME=str(home), TMUX_TMPDIR=str(place), GIT_CONFIG_NOSYSTEM="1")
    (home / ".gitconfig").write_text("[user]\n\tname = Bench\n\temail = bench@example.invalid\n")
    root = place / "template"
    root.mkdir()
    (root / "README.md").write_text("# A project\n")
    task = {"id": "task-1", "description": f"Carry {WORK} upstairs", "done_when": "it is there", "scope": "all"}
    (place / "task.yaml").write_text(json.dumps([{**task, "spec_ref": "README.md"}]))
    liza = str(Path(sys.executable).parent / "liza")
    for words in (
        ("git", "init", "-q", "-b", "main"),
        ("git", "add", "."),
        ("git", "commit", "-q", "-m", "first"),
        (liza, "init", "Parcels are upstairs"),
        (liza, "task", "add", "--file", str(place / "task.yaml")),
    ):
        subprocess.run(words, cwd=root, check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        swept(place)


def waited_for_processor() -> float | None:
    """Seconds, since the machine started, in which something waited for a processor; None where it does not tell."""
    try:
        said = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return None
    found = re.search(r"^some .*total=(\d+)", said, re.MULTILINE)
    return int(found[1]) / 1e6 if found else None


def measured(wanted: Sequence[Order], at_once: int) -> None:
    """The table, and how busy the machine was meanwhile."""
    start, waited, load = time.monotonic(), waited_for_processor(), os.getloadavg()[0]
    tell(carried_out(wanted, at_once))
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} s, {at_once} at once, load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
    if waited is not None:
        share = 100 * ((waited_for_processor() or waited) - waited) / seconds
        print(f"{share:.0f} % of that time something on this machine waited for a processor")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--count", type=int, default=1000)
    words.add_argument("--only", default="", help="kinds with these words in their name")
    words.add_argument("--defence", default="", help="of the defences, those with these words in their name")
    words.add_argument("--defences", type=int, default=24, help="start-ups for each defence that is switched off")
    words.add_argument("--at-once", type=int, default=4 * (os.cpu_count() or 1))
    words.add_argument("--json", action="store_true", help="print only the times of the start-ups, as JSON")
    said = words.parse_args()
    # Asked to end, it takes away what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A socket's name must be short.
    with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        with world(place):
            if said.json:
                results = carried_out(orders(said.count, said.only, place), said.at_once)
                print(json.dumps({"delivered": row(results).delivered}))
            elif said.count:
                measured(orders(said.count, said.only, place), said.at_once)
            if said.defences and not said.only and not said.json:
                with_each_off(said.defences, said.defence, said.at_once, place)


if __name__ == "__main__":
    main()
