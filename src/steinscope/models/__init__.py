"""Models with exact scores."""
