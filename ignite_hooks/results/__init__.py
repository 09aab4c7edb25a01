"""A run as data: what it leaves in its folder, and how it is read again."""
