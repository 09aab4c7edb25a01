"""The run as a hook sees it: the runner, its services, metrics and best values."""
