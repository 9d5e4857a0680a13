"""Loop level: tensor programs of buffers, loops and blocks, and host functions."""
