"""The script of the coder: the files that it writes for each task, by the prior outcome in its brief.

It contains failures on purpose: a first try that rounds down, a session that crashes, one that hands over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from liza.rules.value_classes import Value, field

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
