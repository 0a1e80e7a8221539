"""Pictures of what commands print about the example board: ``python -m tests.pictures`` writes specs/pictures/*.svg."""
