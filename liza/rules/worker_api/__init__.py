"""Decisions of the worker API. Pure: facts are arguments, and each function returns a decision with its reason.

Read `lifecycle_rules.py` first.
"""
