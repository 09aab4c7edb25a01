"""Software that others wrote, run with and without our line: ``make clients``."""
