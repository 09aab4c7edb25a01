"""Configuration files become checked settings and hook objects."""
