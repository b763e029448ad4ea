"""Formats: a decoder per format that produces Changes, and the reduction of a batch to the last change per key."""
