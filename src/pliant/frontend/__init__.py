"""Models of other frameworks to graph functions. Each framework is imported only by its own package."""
