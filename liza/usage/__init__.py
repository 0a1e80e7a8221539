"""Tokens, cost, budgets and accounts of sessions.

`meter.py` has the figures of a running session, `ledger.py` the record of every finished one, `account_choice.py`
chooses the account of the next one.
Read `meter.py` first.
"""
