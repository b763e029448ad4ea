"""Feeds: acceptance, discovery of tables, checkpoint, and the explanation of their state."""
