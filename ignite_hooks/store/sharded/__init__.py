"""States of which every process has a part: all write into one folder, any number of processes reads it."""
