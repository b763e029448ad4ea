"""The agent as a process: sessions one after the other, each held by its lease, and the turns around its machine."""
