"""The role loop for any kind of owner: campaign, replay, announce, fencing, timers. role.py is where to begin."""
