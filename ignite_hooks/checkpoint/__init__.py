"""The run as a dict, and back; start with `save.Checkpoints`."""
