"""The rules of change logs: switches, writers, readers, and the load of streams."""
