"""How each kind of kernel is run: loops, vectors, threads, tiles."""
