"""Measurements: losses, phases, profiles, machine, environment."""
