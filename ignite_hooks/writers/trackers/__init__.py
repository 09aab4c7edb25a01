"""Writers for trackers, and the delivery that they share."""
