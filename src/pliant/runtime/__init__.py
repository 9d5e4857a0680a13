"""Loading and calling compiled code. Imports no compiler and no framework."""
