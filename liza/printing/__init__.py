"""Results of commands as text for people: columns, colours, pages.

Read `printing.py` first.
"""
