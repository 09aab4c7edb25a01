"""Where numbers and pictures go."""

from ignite_hooks.writers.interface import Writer

__all__ = ["Writer"]
