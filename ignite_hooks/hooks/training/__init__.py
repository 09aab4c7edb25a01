"""Hooks that act on the training."""
