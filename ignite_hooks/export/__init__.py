"""A trained model as files that others load: weights, programs, and a page for a hub."""
