"""The scripted coder: reads its brief, writes the files of the task, runs the tests, commits, ends the session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from liza.demo.agents.agent_commands import AgentBrief, print_progress, read_brief, run_command, try_command
from liza.model.value_classes import Value, field


def main() -> None:
    """Run one session."""
    brief = read_brief()
    task = brief.require(r"^TASK (\S+) \(try \d+ of \d+\)")
    steps = CODER_STEPS.get(task)
    if steps is None:
        run_command([*brief.liza, "block", f"there is no script for {task}", "--ask", "Who can do this?"])
        return
    situation = read_prior_outcome(brief)
    print_progress(f"{task}: {situation}")
    # A session may have been stopped between two steps, so an outcome without a step is handled like the first try.
    step = steps.get(situation, steps["first"])
    branch = brief.find(r"[Mm]erge (\S+) into this branch")
    if branch is not None:
        _merge(branch)
    _write(step, brief)
    _end_session(brief, task, step)


def read_prior_outcome(brief: AgentBrief) -> PriorOutcome:
    """Return the prior outcome from the brief. If several apply, the most urgent one is returned."""
    if brief.find(r"^(REJECTED by )"):
        return "rejected"
    if brief.find(r"^(MERGE FAILED: )"):
        return "merge failed"
    if brief.find(r"^(HANDED OVER: )"):
        return "handed over"
    if brief.find(r"^(ANSWERED: )"):
        return "answered"
    return "resumed" if brief.require(r"^TASK \S+ \(try (\d+) of") != "1" else "first"


def _merge(branch: str) -> None:
    """Merge a branch. Conflicting files are overwritten by ``_write``, and the commit concludes the merge."""
    subprocess.run(["git", "merge", "--no-edit", branch], capture_output=True, check=False)
    conflicts = run_command(["git", "diff", "--name-only", "--diff-filter=U"]).split()
    print_progress(f"merged {branch}; conflicts: {', '.join(conflicts) or 'none'}")


def _write(step: Step, brief: AgentBrief) -> None:
    # What a person types is not always an address, and must not become code.
    answer = brief.find(r"^ANSWERED: .* → .*?([\w.+-]+@[\w.-]+)") or "billing@shop.example"
    for name, text in step.files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(ANSWER, answer), encoding="utf-8")
        print_progress(f"wrote {name}")


def _end_session(brief: AgentBrief, task: str, step: Step) -> None:
    match step.end:
        case Crash(words):
            print(words, file=sys.stderr)
            sys.exit(1)
        case AskPerson(why, ask):
            run_command([*brief.liza, "block", why, "--ask", ask])
        case HandOver(done, following):
            _commit(task, done)
            run_command([*brief.liza, "handoff", done, "--next", following])
            sys.exit(42)
        case None:
            _submit(brief, task)


def _submit(brief: AgentBrief, task: str) -> None:
    failure = try_command(brief.require(r"^TESTS\s+(.+?)(?:  \(set-up has been run\))?$"))
    if failure is not None:
        run_command([*brief.liza, "block", f"the tests fail: {failure}", "--ask", "What did I break?"])
        return
    _commit(task, "tests pass")
    run_command([*brief.liza, "submit"])


def _commit(task: str, words: str) -> None:
    """Commit all changes, if there are any: an earlier session may have committed them."""
    run_command(["git", "add", "-A"])
    if try_command("git diff --cached --quiet && ! git rev-parse -q --verify MERGE_HEAD") is not None:
        run_command(["git", "commit", "-q", "-m", f"{task}: {words}"])


ANSWER = "@ANSWER@"
"""Placeholder for the person's answer."""


class AskPerson(Value):
    """End the session with a question to a person."""

    why: str
    question: str


class HandOver(Value):
    """End the session with a handoff: what is done, and what is next."""

    done: str
    next: str


class Crash(Value):
    """End like a program that lost its connection: nothing committed, exit code 1."""

    message: str


class Step(Value):
    """The files that one session writes, and its end; None: submit."""

    files: Mapping[str, str] = field(default_factory=dict)
    end: AskPerson | HandOver | Crash | None = None


PriorOutcome = Literal["first", "rejected", "resumed", "answered", "handed over", "merge failed"]

_MODEL = '''\
"""An invoice: lines of a name and an amount in cents."""

from dataclasses import dataclass


def tax(net, percent):
    """The tax on a net amount, in cents{words}."""
    return {rounding}


@dataclass(frozen=True)
class Invoice:
    lines: tuple = ()

    def net(self):
        return sum(cents for _, cents in self.lines)

    def total(self, percent):
        return self.net() + tax(self.net(), percent)
'''
_MODEL_TEST = """\
import unittest

from shop.invoice import Invoice, tax


class InvoiceTest(unittest.TestCase):
    def test_total_is_net_and_tax(self):
        self.assertEqual(Invoice((("Tea", 1000),)).total(20), 1200)
"""
_ROUNDING_TEST = """\

    def test_half_a_cent_rounds_up(self):
        self.assertEqual(tax(250, 5), 13)
"""
_TEXT = '''\
"""An invoice as text."""

from shop.prices import shown


def page(invoice):
    """The invoice as the customer reads it."""
    lines = [f"{name:<20}{shown(cents):>10}" for name, cents in invoice.lines]
'''
_TEXT_TEST = """\
import unittest

from shop.invoice import Invoice
from shop.text import page


class TextTest(unittest.TestCase):
    def test_a_line_each_and_the_sum(self):
        rows = page(Invoice((("Tea", 250), ("Cup", 1000)))).splitlines()
        self.assertEqual([row.split() for row in rows], [["Tea", "2.50"], ["Cup", "10.00"], ["Net", "12.50"]])
"""
_MAIL = f'''\
"""An invoice as a mail."""

from email.message import EmailMessage

SENDER = "{ANSWER}"


def message(to, text):
    """The mail that carries the invoice's text."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = SENDER, to, "Your invoice"
    mail.set_content(text)
    return mail
'''
_MAIL_TEST = """\
import unittest

from shop.mail import SENDER, message


class MailTest(unittest.TestCase):
    def test_it_goes_from_the_shop_to_the_customer(self):
        mail = message("ann@home.example", "Tea 2.50")
        self.assertEqual((mail["From"], mail["To"]), (SENDER, "ann@home.example"))
"""
_STOCK = '''\
"""The stock: how many of each are there."""


def reserve(stock, name, count):
    """The stock without ``count`` of ``name``; None when there are not so many."""
    left = stock.get(name, 0) - count
    return None if left < 0 else {**stock, name: left}
'''
_STOCK_TEST = """\
import unittest

from shop.stock import reserve


class StockTest(unittest.TestCase):
    def test_what_is_there_is_taken_and_what_is_not_is_refused(self):
        self.assertEqual(reserve({"tea": 2}, "tea", 2), {"tea": 0})
        self.assertIsNone(reserve({"tea": 2}, "tea", 3))
"""
_PRICES = '''\
"""Prices, in cents."""


def shown(cents{arguments}):
    """A price as the customer reads it{words}."""
    return {result}
'''
_CURRENCY = (', currency=""', ", with its currency where one is named", 'f"{cents / 100:.2f} {currency}".rstrip()')
_DISCOUNT = (", percent_off=0", ", percents off where there are some", 'f"{cents * (100 - percent_off) / 10000:.2f}"')
_CURRENCY_AND_DISCOUNT = (
    ', percent_off=0, currency=""',
    ", percents off and with its currency",
    'f"{cents * (100 - percent_off) / 10000:.2f} {currency}".rstrip()',
)
_CURRENCY_TEST = """\
import unittest

from shop.prices import shown


class CurrencyTest(unittest.TestCase):
    def test_the_currency_stands_behind_the_amount(self):
        self.assertEqual(shown(1250, currency="EUR"), "12.50 EUR")
"""
_DISCOUNT_TEST = """\
import unittest

from shop.prices import shown


class DiscountTest(unittest.TestCase):
    def test_percents_are_taken_off(self):
        self.assertEqual(shown(1250, percent_off=10), "11.25")
"""


def _model(words: str, rounding: str) -> str:
    return _MODEL.format(words=words, rounding=rounding)


def _prices(change: tuple[str, str, str]) -> dict[str, str]:
    arguments, words, result = change
    return {"shop/prices.py": _PRICES.format(arguments=arguments, words=words, result=result)}


CODER_STEPS: dict[str, dict[PriorOutcome, Step]] = {
    "invoice-model": {
        "first": Step({"shop/invoice.py": _model("", "net * percent // 100"), "tests/test_invoice.py": _MODEL_TEST}),
        "rejected": Step(
            {
                "shop/invoice.py": _model("; half a cent rounds up", "(net * percent + 50) // 100"),
                "tests/test_invoice.py": _MODEL_TEST + _ROUNDING_TEST,
            }
        ),
    },
    "invoice-text": {
        "first": Step(
            {"shop/text.py": _TEXT}, Crash("ConnectionError: the service hung up in the middle of shop/text.py")
        ),
        "resumed": Step(
            {
                "shop/text.py": _TEXT + '    return "\\n".join([*lines, f"{\'Net\':<20}{shown(invoice.net()):>10}"])\n',
                "tests/test_text.py": _TEXT_TEST,
            }
        ),
    },
    "invoice-mail": {
        "first": Step(end=AskPerson("no document says who sends the invoices", "Which sender address?")),
        "answered": Step({"shop/mail.py": _MAIL, "tests/test_mail.py": _MAIL_TEST}),
    },
    "stock-reserve": {
        "first": Step(
            {"shop/stock.py": _STOCK}, HandOver("reserve() is written and committed", "write tests/test_stock.py")
        ),
        "handed over": Step({"tests/test_stock.py": _STOCK_TEST}),
    },
    "price-currency": {
        "first": Step({**_prices(_CURRENCY), "tests/test_currency.py": _CURRENCY_TEST}),
        "merge failed": Step(_prices(_CURRENCY_AND_DISCOUNT)),
    },
    "price-discount": {
        "first": Step({**_prices(_DISCOUNT), "tests/test_discount.py": _DISCOUNT_TEST}),
        "merge failed": Step(_prices(_CURRENCY_AND_DISCOUNT)),
    },
}


if __name__ == "__main__":
    main()
