"""Hooks that only observe."""
