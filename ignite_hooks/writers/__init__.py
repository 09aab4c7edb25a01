"""Writers: the destinations of numbers and pictures."""

from ignite_hooks.writers.interface import Writer

__all__ = ["Writer"]
