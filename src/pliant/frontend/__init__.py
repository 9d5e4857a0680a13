"""Models of other frameworks to graph functions. Only its own package imports a framework."""
