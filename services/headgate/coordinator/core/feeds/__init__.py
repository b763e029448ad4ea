"""The life of a feed: acceptance, discovery of its tables, checkpoint, and why it is where it is."""
