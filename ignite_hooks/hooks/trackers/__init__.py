"""Hooks that send to a tracker."""
