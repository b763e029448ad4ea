"""What both rooms use: ids, tokens, topologies, the maps of logs, and the state, draft and term of the owner."""
