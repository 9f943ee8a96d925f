"""A target, an evaluator and an agent for avo, as a package of one's own."""
