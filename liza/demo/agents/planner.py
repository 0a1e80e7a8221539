"""The scripted planner: splits the goal into tasks, leaves questions to the person, and ends when the goal is met."""

from __future__ import annotations

import json

from liza.demo.agents.agent_commands import AgentBrief, print_progress, read_brief, run_command
from liza.model.statuses import WakeTrigger


def main() -> None:
    """Run one session."""
    brief = read_brief()
    trigger = brief.require(r"^WHY YOU WERE WOKEN\s+(\w+)")
    decision = (
        _add_tasks(brief)
        if trigger == WakeTrigger.INITIAL_PLANNING
        else DECISIONS.get(trigger, f"{trigger}: nothing to change")
    )
    run_command([*brief.liza, "handoff", decision, "--done"])
    print_progress(decision)


def _add_tasks(brief: AgentBrief) -> str:
    spec = brief.require(r"^GOAL .*  SPEC (\S+)$")
    tasks = [{**task, "spec_ref": spec} for task in TASKS]
    # JSON is valid YAML and quotes all strings.
    run_command([*brief.liza, "task", "add", "--file", "-"], stdin=json.dumps(tasks))
    return f"{len(tasks)} tasks, each with a command that checks it"


TASKS: tuple[dict[str, object], ...] = (
    {
        "id": "invoice-model",
        "description": "An invoice has lines, a net sum and tax",
        "done_when": 'The tests pass, and `python3 -c "from shop.invoice import tax; '
        'assert tax(250, 5) == 13, tax(250, 5)"` succeeds: half a cent rounds up.',
        "scope": "shop/invoice.py, tests/test_invoice.py",
        "priority": 1,
    },
    {
        "id": "price-currency",
        "description": "A price can be shown with its currency",
        "done_when": 'The tests pass, and `python3 -c "from shop.prices import shown; '
        "assert shown(1250, currency='EUR') == '12.50 EUR'\"` succeeds.",
        "scope": "shop/prices.py, tests/test_currency.py",
        "priority": 1,
    },
    {
        "id": "price-discount",
        "description": "A price can be shown with percents off",
        "done_when": 'The tests pass, and `python3 -c "from shop.prices import shown; '
        "assert shown(1250, percent_off=10) == '11.25'\"` succeeds.",
        "scope": "shop/prices.py, tests/test_discount.py",
        "priority": 1,
    },
    {
        "id": "invoice-mail",
        "description": "An invoice goes out by mail",
        "done_when": 'The tests pass, and `python3 -c "from shop.mail import message; '
        "assert '@' in message('ann@home.example', 'Tea 2.50')['From']\"` succeeds.",
        "scope": "shop/mail.py, tests/test_mail.py",
        "priority": 2,
    },
    {
        "id": "stock-reserve",
        "description": "What is on an invoice is reserved in the stock",
        "done_when": "The tests pass, `test -f tests/test_stock.py` succeeds, and "
        "`python3 -c \"from shop.stock import reserve; assert reserve({'tea': 2}, 'tea', 3) is None\"` succeeds.",
        "scope": "shop/stock.py, tests/test_stock.py",
        "priority": 2,
    },
    {
        "id": "invoice-text",
        "description": "An invoice can be read as text",
        "done_when": 'The tests pass, and `python3 -c "from shop.invoice import Invoice; from shop.text import page; '
        "assert 'Tea' in page(Invoice((('Tea', 250),)))\"` succeeds.",
        "scope": "shop/text.py, tests/test_text.py",
        "priority": 1,
        "depends_on": ["invoice-model"],
    },
)

DECISIONS: dict[str, str] = {
    WakeTrigger.BLOCKED_TASKS: "the sender address is in no document; a person has to give it",
    WakeTrigger.SPRINT_COMPLETE: "the goal is met: model, text, mail, prices and stock are merged and tested",
}


if __name__ == "__main__":
    main()
