"""Loop programs to machine code."""
