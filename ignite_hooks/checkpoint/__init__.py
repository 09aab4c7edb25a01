"""The run as a dict, and back: capture, restore, resume, retention."""
