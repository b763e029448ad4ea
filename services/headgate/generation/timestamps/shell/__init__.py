"""Clients of timestamp sets: the stream of a write, and the streams to read."""
