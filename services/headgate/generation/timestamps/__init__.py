"""Timestamp sets: generations that begin at a time, for sources that have only clocks."""
