"""Pages that need no other file: data in, HTML out."""
