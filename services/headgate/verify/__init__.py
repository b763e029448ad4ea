"""Whether a feed's tables equal their sources, without the use of Headgate's own positions or checksums."""
