"""Tokens, cost, budgets and accounts of sessions.

`meter.py` counts the tokens of a running session, `ledger.py` keeps one record of each, `costs.py` has sums,
and `account_choice.py` chooses the account of the next session.
Read `meter.py` first.
"""
