"""What the picture shows: snapshots and views in, lines out. No disk, no process, no terminal."""
