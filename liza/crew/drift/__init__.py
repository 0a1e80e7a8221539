"""Drift: changes to the repository or the settings that were made outside of Liza.

`drift.py` compares integration with the commit at which Liza left it.
`drift_cache.py` keeps the last result for readers that run no git.
`confirmed_settings.py` holds the settings that a person confirmed.
Read `drift.py` first.
"""
