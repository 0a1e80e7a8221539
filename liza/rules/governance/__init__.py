"""What agents report beside their work, and what planners and people decide about it.

`board_reports.py` adds, converts and resolves discoveries and anomalies, `anomaly_kinds.py` has the kinds of anomalies
with the details that each needs. Read `board_reports.py` first.
"""
