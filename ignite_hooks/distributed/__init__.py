"""Several processes: collectives, watchdog, batch sharing, merging of metrics."""
