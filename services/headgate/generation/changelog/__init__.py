"""Change logs: topics whose partitions are split and merged while they are written and read."""
