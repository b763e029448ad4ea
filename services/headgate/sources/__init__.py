"""The source of a feed: topics, partitions, offsets, and the records that retention has left."""
