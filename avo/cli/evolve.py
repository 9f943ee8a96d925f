"""to come"""


def evolve() -> None:
    """to come"""
