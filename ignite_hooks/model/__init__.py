"""Models and optimizers: wrapping, averages, rollback, loader workers."""
