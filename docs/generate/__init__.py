"""Writes the pages of the site, as a folder of Markdown that any builder reads: ``python -m docs.generate``."""
