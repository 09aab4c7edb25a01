"""Measurements of a run: losses, phases, profiles, gradients, machine, environment."""
