"""Where a run is in its data, and how a resumed run gets there again."""
