"""Every operator's one definition, a file per family; `table.OPERATORS` has them all by name."""
