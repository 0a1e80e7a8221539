"""Values as text: times, counts, redaction, suggestions. Pure.

Read `formats.py` first.
"""
