"""The role loop for any kind of owner: election, replay, announcement, fencing, timers. Start with role.py."""
