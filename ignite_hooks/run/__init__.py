"""What a hook sees: the runner, its services, metrics and best values."""
