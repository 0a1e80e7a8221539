"""The pure part: no disk, no processes, no clock, no environment."""
