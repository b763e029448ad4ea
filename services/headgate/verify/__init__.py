"""Whether a feed's tables are what their sources are, judged without any position or checksum of ours."""
