"""Disposable read models: the state on the control topics and its history, over HTTP.

Everything here follows from the topics, is kept in memory and is rebuilt from them at each start. Nothing is decided
here, no control topic is written, and no other service needs it.
"""
