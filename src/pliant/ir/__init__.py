"""What the graph and loop levels share: nodes, scalar expressions, tensor expressions, modules."""
