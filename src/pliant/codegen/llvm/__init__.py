"""LLVM: IR text, optimisation, objects. Everything that native targets share."""
