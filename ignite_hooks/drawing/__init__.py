"""Numbers and arrays -> figures."""
