"""Typing with proof, against screens that a test draws: no terminal, no clock, no waiting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from liza.model.value_classes import replace
from liza.programs.presets.preset import Dialog, Preset
from liza.programs.terminal import keyboard, readiness, screens
from liza.programs.terminal.keyboard import Enter, KeyboardAction, LeaveHistory, LookAtScreen, NotSent, Paste, Sent
from liza.programs.terminal.screens import Screen

PROMPT = Preset(name="x", ready_prompt="❯ ", dialogs=(Dialog(kind="trust", match="Do you trust the files"),))
PLAIN = Preset(name="y")


class Tui:
    """A program with a framed composer at the bottom and its talk above, as most agents have it."""

    def __init__(self, width: int = 40) -> None:
        self.width = width
        self.said: list[str] = ["Welcome"]
        self.draft = ""
        self.enters = 0
        self.deaf_until = 0.0
        self.enters_needed = 1
        self.folds = False
        self.extra: dict[str, object] = {}
        self.overlay: tuple[str, ...] | None = None
        self.pasted: list[str] = []
        self.time = 0.0

    def screen(self) -> Screen:
        body = self.said[-20:]
        if self.overlay is not None:
            lines = (*body, *self.overlay)
            return Screen(lines, cursor_row=len(lines) - 1, time=self.time, line_mode=False, **self.extra)
        draft = self.draft or ""
        rows = [draft[at : at + self.width] for at in range(0, len(draft), self.width)] or [""]
        box = [f"│ {'❯' if not at else ' '}\u00a0{row:<{self.width}} │" for at, row in enumerate(rows)]
        lines = (*body, "╭" + "─" * 44 + "╮", *box, "╰" + "─" * 44 + "╯", "  ? for shortcuts")
        return Screen(lines, cursor_row=len(lines) - 1, time=self.time, line_mode=False, **self.extra)

    def does(self, act: KeyboardAction) -> Screen:
        if isinstance(act, LookAtScreen):
            self.time += act.timeout
        elif isinstance(act, LeaveHistory):
            self.extra["in_copy_mode"] = False
        elif isinstance(act, Paste):
            self.pasted.append(act.text)
            self.draft += f"[Pasted text #1 +{act.text.count(chr(10))} lines]" if self.folds else act.text
        elif self.time >= self.deaf_until and self.overlay is None:
            self.enters += 1
            if self.enters >= self.enters_needed:
                self.said.append(f"❯ {self.draft}")
                self.draft = ""
        return self.screen()


def typed(program: Tui, text: str, preset: Preset = PROMPT, limit: float = 20.0) -> Sent | NotSent:
    policy = keyboard.plan_typing(text, preset, limit)
    try:
        act = next(policy)
        for _ in range(1000):
            act = policy.send(program.does(act))
    except StopIteration as over:
        return over.value
    raise AssertionError("it never came to an end")


def test_a_program_that_takes_the_text_gets_one_enter() -> None:
    program = Tui()
    assert typed(program, "hello there") == Sent(1)
    assert program.said[-1] == "❯ hello there"
    assert (len(program.pasted), program.enters) == (1, 1)


def test_a_long_text_is_found_though_wrapped_and_framed() -> None:
    program = Tui(width=13)
    assert typed(program, "please look at the failing test of the parser first, and then go on") == Sent(1)


def test_a_folded_paste_counts_as_typed() -> None:
    program = Tui()
    program.folds = True
    assert typed(program, "one\ntwo\nthree") == Sent(1)
    assert program.said[-1] == "❯ [Pasted text #1 +2 lines]"


def test_enter_is_repeated_only_while_the_text_is_there() -> None:
    program = Tui()
    program.enters_needed = 2
    assert typed(program, "hello") == Sent(2)
    assert (len(program.pasted), program.enters) == (1, 2)


def test_program_deaf_to_enter_gets_the_text_in_the_end() -> None:
    program = Tui()
    program.deaf_until = 3.0
    assert typed(program, "hello") == Sent(4)
    assert len(program.pasted) == 1


def test_program_that_never_takes_it_is_reported_without_second_paste() -> None:
    program = Tui()
    program.deaf_until = 1e9
    assert typed(program, "hello") == NotSent("it was typed but not sent, after 4 Enters", is_left_unsent=True)
    program.deaf_until = 0.0
    assert typed(program, "hello") == Sent(1)
    assert program.pasted == ["hello"]


def test_nothing_is_typed_into_a_trust_dialog_like_a_prompt() -> None:
    program = Tui()
    program.overlay = ("Do you trust the", "files in this folder?", "❯ 1. Yes, proceed", "  2. No, exit")
    assert typed(program, "hello") == NotSent("the program shows its trust dialog: 'Do you trust the files'")
    assert (program.pasted, program.enters) == ([], 0)


@pytest.mark.parametrize(
    ("overlay", "says"),
    [
        (("Allow this command?", "❯ 1. Yes", "  2. No"), "the program shows a menu: '1. Yes'"),
        (("Theme", "❯ No, keep it"), "the program shows a menu: 'No, keep it'"),
    ],
)
def test_an_unknown_menu_is_left_for_a_person_to_answer(overlay: tuple[str, ...], says: str) -> None:
    program = Tui()
    program.overlay = overlay
    assert typed(program, "hello") == NotSent(says)
    assert program.pasted == []


def test_a_yes_or_no_question_is_left_for_a_person() -> None:
    line = "Overwrite the file? [y/N] "
    asks = Screen((line,), cursor_column=len(line), idle_confidence=0.95)
    assert keyboard.find_refusal(asks, PLAIN) == NotSent("the program shows a question: 'Overwrite the file? [y/N]'")


ASKS = [
    "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
    "Stage this hunk [y,n,q,a,d,e,?]? ",
    "Ok to proceed? (y) ",
    "Overwrite? (Y/n/a): ",
    "Continue? [yes]: ",
    "Proceed ([y]/n)? ",
    "Is this ok [y/d/N]: ",
    "(A)bort, (R)etry, (I)gnore? ",
    "(Y)es/(N)o/(D)on't ask again [Yes]: ",
    "keep [o]urs or [t]heirs? ",
    "continue, y/n: ",
    "Do you want to continue? ",
    "rm: remove write-protected regular file 'x'? ",
    "Type 'yes' to go on: ",
    "Enter a value: ",
    "Your choice: ",
    "#? ",
    "Password: ",
    "[sudo] password for x: ",
    "Enter passphrase for key '/x':",
    "Enter PIN: ",
    "Username for 'https://host': ",
    "Press Enter to continue",
    "Press any key to continue . . .",
    "--More--(50%)",
    "(END)",
]
ASKS_NOTHING = [
    "",
    "> ",
    "agent> ",
    "[main] > ",
    "[1/3] > ",
    "(no task) > ",
    "(10:32) > ",
    "? for shortcuts",
    "Press Enter to send",
    "~/a (feature/x) > ",
]


def at_cursor(*lines: str, **shows: object) -> Screen:
    shown: dict[str, object] = {
        "line_mode": True,
        "idle_confidence": 0.95,
        "cursor_column": len(lines[-1]),
        "cursor_row": len(lines) - 1,
        **shows,
    }
    return Screen(lines, **shown)


@pytest.mark.parametrize("by_line", [True, False])
@pytest.mark.parametrize("line", ASKS)
def test_a_question_at_the_cursor_gets_no_message_as_answer(line: str, by_line: bool) -> None:
    for screen in (at_cursor("hello", line, line_mode=by_line), at_cursor("❯ earlier", line, line_mode=by_line)):
        policy = keyboard.plan_typing("hello", PROMPT)
        next(policy)
        with pytest.raises(StopIteration) as over:
            policy.send(screen)
        assert over.value.value == NotSent(f"the program shows a question: {line.strip()[-60:]!r}")


@pytest.mark.parametrize("line", ASKS_NOTHING)
def test_a_waiting_line_at_the_cursor_is_typed_into(line: str) -> None:
    assert keyboard.find_refusal(at_cursor("hello", line), PLAIN) is None


def test_a_busy_programs_line_with_a_colon_asks_nothing() -> None:
    assert keyboard.find_refusal(at_cursor("Building the index: ", is_busy=True), PLAIN) is None
    assert keyboard.find_refusal(at_cursor("Overwrite? [y/N] ", is_busy=True), PLAIN) is not None


def test_a_question_of_a_busy_program_is_still_one() -> None:
    assert keyboard.find_refusal(at_cursor("Really delete all files? ", is_busy=True), PLAIN) is not None


@pytest.mark.parametrize("line", ["Really delete all files? ", "Username: "])
def test_a_prompt_above_a_question_does_not_win_over_it(line: str) -> None:
    screen = at_cursor("❯ clean up", line, is_busy=True, idle_confidence=0.0)
    policy = keyboard.plan_typing("yes", PROMPT)
    act: object = next(policy)
    with suppress(StopIteration):
        for now in range(60):
            act = policy.send(replace(screen, time=float(now)))
            assert isinstance(act, LookAtScreen)
    assert now < 59, "it was typed, or never refused"


def test_a_persons_line_in_an_unknown_frame_asks_nothing() -> None:
    framed = at_cursor(
        "┃  what is left?", "┃", "  /home/ann/shop (main)", line_mode=False, cursor_row=0, cursor_column=16
    )
    assert keyboard.find_refusal(framed, PLAIN) is None
    assert keyboard.find_refusal(replace(framed, lines=framed.lines[:1]), PLAIN) is not None


@pytest.mark.parametrize("line", ["Do you want to continue? [y/N] ", "Password: "])
def test_question_words_elsewhere_than_before_cursor_do_not_prevent_typing(line: str) -> None:
    assert keyboard.find_refusal(at_cursor(line, "> "), PLAIN) is None
    assert keyboard.find_refusal(at_cursor(f"❯ {line}"), PROMPT) is None
    assert keyboard.find_refusal(at_cursor(f"❯ {line}", cursor_column=2, line_mode=False), PROMPT) is None
    assert keyboard.find_refusal(at_cursor(line, "❯ try this?", cursor_column=2, line_mode=False), PROMPT) is None


def test_a_question_with_an_ended_line_needs_visible_choices() -> None:
    assert keyboard.find_refusal(at_cursor("Overwrite? [y/N]", ""), PLAIN) is not None
    assert keyboard.find_refusal(at_cursor("Overwrite? [y/N]", "", line_mode=False), PLAIN) is None
    assert keyboard.find_refusal(at_cursor("Shall we go on?", ""), PLAIN) is None


def test_a_question_that_is_wrapped_is_read_as_one_line() -> None:
    asks = at_cursor("Are you sure you want to continue (y", "es/no)? ", width=36)
    assert keyboard.find_refusal(asks, PLAIN) is not None


def test_a_message_that_ends_like_a_question_asks_nothing_itself() -> None:
    program = Line("> ")
    assert typed(program, "ask them: overwrite? [y/N]", PLAIN) == Sent(1)
    assert program.got == ["> ask them: overwrite? [y/N]"]
    stands = at_cursor("Overwrite? [y/N] y")
    assert keyboard.find_refusal(stands, PLAIN, "y") is not None
    assert keyboard.find_refusal(at_cursor("> do we overwr", "ite? [y/N]"), PLAIN, "do we overwrite? [y/N]") is None


def test_a_message_shown_in_part_is_not_mistaken_for_questions() -> None:
    cut = at_cursor("\u276f", "\u2026 the parser first, and tell me then what is left?", line_mode=False)
    assert keyboard.find_refusal(cut, PROMPT) is not None
    assert keyboard.find_refusal(cut, PROMPT, "look at the parser first, and tell me then what is left?") is None
    assert keyboard.find_refusal(cut, PROMPT, "is it left?") is not None


def test_a_line_without_echo_is_taken_for_a_password() -> None:
    found = keyboard.find_refusal(at_cursor("> ", is_echo_off=True), PROMPT)
    assert found == NotSent("the program shows an input line without echo, as for a password")


def looked_at(screen: Screen, text: str = "hello", preset: Preset = PROMPT) -> KeyboardAction:
    """What comes after two looks that show this."""
    policy = keyboard.plan_typing(text, preset)
    next(policy)
    act = policy.send(screen)
    return policy.send(screen) if isinstance(act, LookAtScreen) else act


BEGUN = at_cursor(
    "Welcome", "❯ rm -rf all? NO, WAIT - ", line_mode=False, seconds_since_key=60.0, seconds_since_change=60.2
)


def test_a_persons_begun_line_is_not_sent_with_a_message() -> None:
    assert isinstance(looked_at(BEGUN), LookAtScreen)
    assert isinstance(looked_at(replace(BEGUN, seconds_since_key=None, was_visited=True)), LookAtScreen), (
        "who began it has left"
    )
    assert isinstance(looked_at(replace(BEGUN, seconds_since_key=None)), Paste), (
        "nobody was ever there who could have begun it"
    )
    assert isinstance(looked_at(replace(BEGUN, cursor_column=2)), Paste), "the program says what one may type"
    assert looked_at(BEGUN, "rm -rf all? NO, WAIT -") == Enter(), "an earlier try of this very message"
    assert isinstance(looked_at(BEGUN, "WAIT -"), LookAtScreen), "an earlier try behind what a person has begun"


def test_a_message_the_kernel_would_cut_is_not_typed() -> None:
    long = "word " * 900
    program = Line("> ")
    found = typed(program, long, PLAIN)
    assert found == NotSent("it has 4499 bytes; a line that the kernel edits has at most 4000", can_be_typed=False)
    assert program.got == []
    assert typed(Tui(), long) == Sent(1)


def test_a_persons_wrapped_line_is_seen_unlike_a_parked_cursor() -> None:
    wrapped = at_cursor("❯ one two three", "four", line_mode=False, seconds_since_key=60.0, width=15)
    assert isinstance(looked_at(wrapped), LookAtScreen)
    assert isinstance(looked_at(replace(wrapped, lines=("❯ try this", "? for help"))), Paste)


def refused(screen: Screen, preset: Preset) -> NotSent:
    """How typing ends at a screen that never changes, however long it is looked at."""
    policy, now = keyboard.plan_typing("hello", preset), 0.0
    next(policy)
    found = None
    while found is None:
        try:
            act = policy.send(replace(screen, time=now))
        except StopIteration as over:
            found = over.value
        else:
            assert isinstance(act, LookAtScreen), act
            now += 1.0
    assert isinstance(found, NotSent)
    return found


def test_unknown_empty_lines_send_messages_into_brief_after_a_person() -> None:
    plain = at_cursor("> ", was_visited=True)
    assert refused(plain, PLAIN) == keyboard.LINE_UNKNOWN
    assert refused(replace(plain, was_visited=False, seconds_since_key=60.0), PLAIN) == keyboard.LINE_UNKNOWN
    assert isinstance(looked_at(replace(plain, was_visited=False), preset=PLAIN), Paste), "nobody was ever there"
    # A row that says it is waited for: the program may still be coming up.
    assert refused(at_cursor("no prompt here", was_visited=True, line_mode=False), PROMPT) == keyboard.LINE_UNKNOWN


def test_a_person_reading_history_is_undisturbed_until_keys_rest() -> None:
    reads = at_cursor("❯ ", line_mode=False, in_copy_mode=True, seconds_since_key=3.0)
    assert isinstance(looked_at(reads), LookAtScreen)
    assert looked_at(replace(reads, seconds_since_key=30.0)) == LeaveHistory()


def test_a_dialogs_text_above_the_prompt_does_not_prevent_typing() -> None:
    program = Tui()
    program.said.append("The dialog says: Do you trust the files in this folder?")
    assert typed(program, "hello") == Sent(1)


def test_a_dialog_after_the_paste_gets_no_enter() -> None:
    program = Tui()
    policy = keyboard.plan_typing("hello", PROMPT)
    seen = program.does(next(policy))
    act = policy.send(seen)
    assert act == Paste("hello")
    program.does(act)
    program.overlay = ("Do you trust the files in this folder?", "❯ 1. Yes")
    with pytest.raises(StopIteration) as over:
        policy.send(program.screen())
    assert isinstance(over.value.value, NotSent)


def test_a_text_that_opens_a_dialog_counts_as_sent() -> None:
    program = Tui()
    policy = keyboard.plan_typing("hello", PROMPT)
    act: KeyboardAction = next(policy)
    while not isinstance(act, Enter):
        act = policy.send(program.does(act))
    program.does(act)
    program.overlay = ("Do you trust the files in this folder?", "❯ 1. Yes")
    with pytest.raises(StopIteration) as over:
        policy.send(program.screen())
    assert over.value.value == Sent(1)


def test_a_terminal_showing_history_leaves_it_before_typing() -> None:
    program = Tui()
    program.extra["in_copy_mode"] = True
    policy = keyboard.plan_typing("hello", PROMPT)
    act = policy.send(program.does(next(policy)))
    assert act == LeaveHistory()
    assert policy.send(program.does(act)) == Paste("hello")


@pytest.mark.parametrize(
    ("shows", "answer"),
    [
        ({"is_alive": False}, NotSent("the program is dead", is_retryable=False, counts_as_try=False)),
        ({"foreground_argv": ("-bash",)}, NotSent("a shell has the terminal: -bash")),
        ({"foreground_argv": ("/bin/sh", "-i")}, NotSent("a shell has the terminal: /bin/sh -i")),
        ({"seconds_since_key": 1.0}, NotSent("a person is typing into it")),
        ({"seconds_since_key": 60.0}, Sent(1)),
        ({"foreground_argv": ("/bin/sh", "./agent.sh")}, Sent(1)),
        ({"foreground_argv": ("sh", "-c", "read line")}, Sent(1)),
    ],
)
def test_nothing_is_typed_to_dead_programs_shells_or_busy_persons(shows: dict[str, object], answer: object) -> None:
    program = Tui()
    program.extra.update(shows)
    assert typed(program, "hello", limit=5.0) == answer
    assert len(program.pasted) == isinstance(answer, Sent)


def test_a_shell_named_by_a_row_is_a_program() -> None:
    program = Tui()
    program.extra["foreground_argv"] = ("fish",)
    fish = Preset(name="fish", ready_prompt="❯ ", process_names=("fish",))
    assert typed(program, "hello", fish) == Sent(1)


def test_a_program_without_its_visible_prompt_is_waited_for() -> None:
    program = Tui()
    program.overlay = ("Loading…",)
    assert typed(program, "hello", limit=3.0) == NotSent("it does not show its prompt '❯ '")
    assert 3.0 <= program.time < 5.0


def test_an_old_prompt_far_above_gets_no_typing() -> None:
    lines = ("❯ an earlier question", *(f"line {number}" for number in range(20)))
    assert not screens.has_prompt(Screen(lines), "❯ ")
    assert screens.has_prompt(Screen(lines[:5]), "❯ ")


def seen_twice(screen: Screen, patterns: tuple[str, ...] = ()) -> KeyboardAction:
    """What comes after two looks that show the same."""
    policy = keyboard.plan_typing("hello", PLAIN, patterns=patterns)
    next(policy)
    policy.send(screen)
    return policy.send(screen)


def test_a_question_drawn_just_before_a_read_is_noticed() -> None:
    policy = keyboard.plan_typing("hello", PROMPT)
    next(policy)
    late = Screen(("Loading...",), idle_confidence=0.95, seconds_since_change=5.0, line_mode=False)
    assert isinstance(policy.send(late), LookAtScreen)
    asks = ("Do you trust the files in this folder?", "❯ 1. Yes, proceed")
    assert isinstance(policy.send(replace(late, lines=asks, seconds_since_change=0.1)), LookAtScreen)


def test_a_program_that_has_drawn_nothing_is_not_typed_into() -> None:
    for by_line, wanted in ((False, LookAtScreen), (True, Paste)):
        assert isinstance(seen_twice(Screen((" ", ""), line_mode=by_line, idle_confidence=0.95)), wanted)


class Line:
    """A program that reads lines: the kernel shows what is typed, whether anybody reads it or not."""

    def __init__(self, prompt: str = "") -> None:
        self.lines = ["hello, I am a line editor", prompt]
        self.time = 0.0
        self.waiting = 0.95
        self.got: list[str] = []

    def does(self, act: KeyboardAction) -> Screen:
        if isinstance(act, LookAtScreen):
            self.time += act.timeout
        elif isinstance(act, Paste):
            self.lines[-1] += act.text
        elif isinstance(act, Enter):
            self.got.append(self.lines[-1])
            self.lines.append("")
        return Screen(
            tuple(self.lines),
            cursor_row=len(self.lines) - 1,
            cursor_column=len(self.lines[-1]),
            time=self.time,
            line_mode=True,
            idle_confidence=self.waiting,
        )


@pytest.mark.parametrize("prompt", ["", "> "])
def test_a_line_reader_has_a_message_once_the_cursor_moved(prompt: str) -> None:
    program = Line(prompt)
    assert typed(program, "go on", PLAIN) == Sent(1)
    assert program.got == [f"{prompt}go on"]


def test_a_program_without_a_prompt_is_typed_into_while_waiting() -> None:
    program = Line()
    program.waiting = 0.6
    assert typed(program, "go on", PLAIN, limit=2.0) == NotSent("it takes no input")
    assert program.got == []


class Unknown(Tui):
    """A framed composer whose sign no row names, with the cursor parked below it."""

    def screen(self) -> Screen:
        drawn = super().screen()
        return replace(drawn, lines=tuple(line.replace("❯", "▶") for line in drawn.lines), idle_confidence=0.95)


def test_an_unknown_composer_is_empty_once_its_text_moved_up() -> None:
    program = Unknown()
    assert typed(program, "please look at the failing test", PLAIN) == Sent(1)


def test_a_message_presses_no_keys_of_its_own() -> None:
    assert keyboard.strip_keys("a\x1b[201~\x03b\tc\r\nd\x9b") == "a[201~b    c\nd"
    assert typed(Tui(), "\x1b\x1b \n") == NotSent("it has no text to type", is_retryable=False)


SHELLS: list[tuple[str, bool]] = [
    ("", False),
    ("bash", True),
    ("-bash", True),
    ("/usr/bin/zsh -l", True),
    ("bash --norc -i", True),
    ("bash --rcfile /dev/null -i", True),
    ("bash -O extglob", True),
    ("sh -s x", True),
    ("sh -eux", True),
    ("bash -eo pipefail ./agent.sh", True),
    ("bash --", True),
    ("bash /dev/stdin", True),
    ("sh /dev/../dev/fd/0", True),
    ("bash /proc/self/fd/0", True),
    ("bash //dev/tty", True),
    ("fish -C x", True),
    ("nix-shell", True),
    ("busybox sh", True),
    ("sudo -u x bash", True),
    ("script -qc ./agent log", True),
    ("su", True),
    ("bash ./agent.sh", False),
    ("sh /home/x/agent.sh -i", False),
    ("sh -eux ./agent.sh", False),
    ("sh -c x", False),
    ("sh -ec x", False),
    ("fish ./agent.fish", False),
    ("env A=b ./agent", False),
    ("node cli.js", False),
    ("/home/x/bash-agent", False),
]


@pytest.mark.parametrize(("line", "shell"), SHELLS)
def test_a_shell_is_recognized_by_its_first_argument(line: str, shell: bool) -> None:
    assert readiness.is_shell(tuple(line.split())) is shell


def test_a_renamed_shell_is_recognized_by_its_program_file() -> None:
    assert readiness.reveal_shell(("python3", "-i"), "/bin/bash") == ("/bin/bash", "-i")
    assert readiness.reveal_shell(("sh", "-i"), "/bin/busybox") == ("sh", "-i")
    assert readiness.reveal_shell(("sh", "./agent.sh"), "/bin/dash") == ("sh", "./agent.sh")
    assert readiness.reveal_shell(("agent",), "/usr/bin/python3") == ("agent",)


@pytest.mark.parametrize(("silence", "confidence"), [(None, 0.0), (0.1, 0.0), (0.6, 0.2), (1.5, 0.5), (30.0, 0.8)])
def test_silence_is_a_sign_that_grows_and_never_proves(
    silence: float | None, confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "process_signs", lambda *_: ())
    found = readiness.session_signs(None, silence, 0.0)
    assert readiness.combine_confidence(found, 0.0) == pytest.approx(confidence)


def test_without_proc_only_silence_is_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "process_signs", lambda *_: ())
    monkeypatch.setattr(readiness.processes, "has_proc", lambda: False)
    found = readiness.session_signs(None, 60.0, 0.0)
    assert [one.source for one in found] == ["silence without /proc"]
    assert readiness.combine_confidence(found, 0.0) > readiness.IDLE_THRESHOLD


def test_one_contrary_sign_outweighs_all_others() -> None:
    idle, busy = (
        readiness.IdleSign("silence", 0.8, 9.0),
        readiness.IdleSign("process", 0.95, 7.0, is_busy=True),
    )
    assert readiness.combine_confidence((idle, busy), 10.0) == 0.0
    assert readiness.combine_confidence((idle, busy), 10.1) == pytest.approx(0.8), "what is stale outweighs nothing"
    waits = readiness.IdleSign("process", 0.6, 9.0)
    assert readiness.combine_confidence((idle, waits), 10.0) == pytest.approx(0.9)


BOX = (
    "│ Do you want these folders added?                 │",
    "│ ● 1. Yes                                         │",
    "│   2. Yes, and remember the directories as trusted│",
    "│   3. No                                          │",
)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (BOX, "a menu: '1. Yes'"),
        ((*BOX, "❯ "), None),
        (("* 2) Leave", "", "  1) Stay"), "a menu: '2) Leave'"),
        (("Two things:", "● 1. Yes", "and so on"), None),
        (("Two things:", " 1. Yes", " 2. No"), None),
    ],
)
def test_numbered_options_are_a_menu_unless_a_prompt_is_below(lines: tuple[str, ...], says: str | None) -> None:
    assert screens.find_question(Screen(lines), "❯ ", ()) == says


DRAWN: list[tuple[Callable[[], Screen], str | None]] = [
    (lambda: Screen(("Do\u00a0you trust", "│ the files │ here", "❯ 1. Yes")), "its trust dialog"),
    (lambda: Screen(("Do you trust the files here", "❯ what is this?")), None),
    (lambda: Screen(("❯ what is this?", "Do you trust the files here")), "its trust dialog"),
    (lambda: Screen(("❯ ",)), None),
    (lambda: Screen(()), None),
]


@pytest.mark.parametrize(("draw", "says"), DRAWN)
def test_a_dialog_is_found_when_wrapped_framed_or_oddly_spaced(draw: Callable[[], Screen], says: str | None) -> None:
    found = screens.find_question(draw(), "❯ ", PROMPT.dialogs)
    assert found is None if says is None else found is not None and says in found


def test_a_brief_question_during_startup_costs_no_try() -> None:
    policy = keyboard.plan_typing("hello", PROMPT)
    next(policy)
    asks = ("Do you trust the files in this folder?", "❯ 1. Yes, proceed")
    assert isinstance(
        policy.send(Screen(asks, cursor_row=1, seconds_since_change=0.1, time=0.1, line_mode=False)), LookAtScreen
    )
    assert isinstance(policy.send(Tui().screen()), Paste)


def test_a_last_line_pattern_shows_that_a_program_waits() -> None:
    for patterns, wanted in (((), LookAtScreen), ((r"^ask me> ?$",), Paste)):
        assert isinstance(seen_twice(Screen(("Welcome", "ask me> "), cursor_row=1, cursor_column=8), patterns), wanted)


def test_the_next_look_follows_enough_silence_to_show_waiting() -> None:
    policy = keyboard.plan_typing("hello", PLAIN)
    next(policy)
    for _ in range(8):
        act = policy.send(Screen(("Welcome",), idle_confidence=0.6, seconds_since_change=0.3, line_mode=False))
        assert isinstance(act, LookAtScreen)
        assert act.timeout <= readiness.SILENT_SECONDS - 0.3 + keyboard.MIN_REST + 1e-9


def test_a_prompt_without_a_listener_is_waited_for_only_briefly() -> None:
    policy = keyboard.plan_typing("hello", PROMPT)
    next(policy)
    looks = 0
    program = Tui()
    program.extra["is_busy"] = True
    while isinstance(act := policy.send(program.screen()), LookAtScreen):
        program.time += act.timeout
        looks += 1
    assert isinstance(act, Paste)
    assert program.time >= keyboard.PROMPT_OVERRIDE > program.time - 2 * keyboard.FIRST_INTERVAL
    assert looks > 10
