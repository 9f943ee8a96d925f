"""From a checked program to source code. `dsl.lowering.lower` is the way in."""
