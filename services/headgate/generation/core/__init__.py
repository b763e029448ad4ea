"""Shared by both rooms: ids, tokens, topologies, the maps of logs, and the state, draft and term of the owner."""
