"""What Liza costs, each row beside a rival that is measured in the same run. Read `__main__.py` first."""
