"""Values as text: times, counts, redaction, suggestions. Pure.

Read `times.py` first.
"""
