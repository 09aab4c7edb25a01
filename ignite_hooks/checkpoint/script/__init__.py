"""What the script holds itself and no service names: found, saved with the run, put back."""
