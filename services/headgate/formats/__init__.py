"""Formats in, one Change out: a decoder per format, and the reducing of a batch to its last word per key."""
