"""What a feed reads: topics, partitions, offsets and what retention has left of them."""
