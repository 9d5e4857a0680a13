"""Graph to graph passes."""
