"""Built-in data."""
