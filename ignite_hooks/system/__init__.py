"""What systems and accelerators do differently."""
