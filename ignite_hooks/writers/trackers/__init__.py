"""Writers for trackers, and the delivery they share."""
