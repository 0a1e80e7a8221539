"""What agents report beside their work, and patterns of failure that stop a crew: the circuit breaker.

`board_reports.py` adds, converts and resolves discoveries and anomalies, `anomaly_kinds.py` has the kinds of anomalies
with the details that each needs. `watched_events.py` collects the events that count, `breaker_patterns.py` compares
them with the thresholds of `config.breaker`, `breaker_trips.py` records and resolves trips on the board,
and says which are open. `text_similarity.py` compares texts. `root_cause.py` has the
rule for a coder's brief after similar rejections. `line_comments.py` has the comments of a verdict on lines,
`sprint_alarms.py` and `retrospective.py` sum up a sprint. Read `board_reports.py` first, for the breaker
`breaker_patterns.py`.
"""
