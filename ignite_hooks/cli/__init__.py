"""The command line: ``ignite-hooks``."""

from ignite_hooks.cli.app import main

__all__ = ["main"]
