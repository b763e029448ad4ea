"""Random bits for pure code: a deterministic sequence from one number.

The generator is splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
"""

from typing import Final

_MASK: Final = (1 << 64) - 1


class Splitmix:
    """A sequence of random bits; two with the same seed give the same ones."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self, count: int) -> int:
        """So many bits, at most 64."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        value = self._state
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
        return (value ^ value >> 31) >> (64 - count)

    def fraction(self) -> float:
        """A number above 0 and below 1, of 52 bits."""
        return (self.bits(52) + 0.5) / (1 << 52)
