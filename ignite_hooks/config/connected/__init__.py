"""The configuration as a tracker shows it, lets people edit it, and gives it back."""
