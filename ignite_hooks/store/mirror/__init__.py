"""The second home of a run: an object store, or any other place that fsspec can reach."""
