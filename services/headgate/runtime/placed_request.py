"""A request that waits in an owner's state, with its place on the topic."""

from typing import Generic, TypeVar

import msgspec

from headgate.records.base import Record

__all__ = ["PlacedRequest"]

R = TypeVar("R", bound=Record)


class PlacedRequest(msgspec.Struct, Generic[R], frozen=True):
    """``offset``: of the request. Requests are answered in this order, and a new thing may be named after it."""

    offset: int
    request: R
