"""The records of one set as they come, for writers, readers and commands."""
