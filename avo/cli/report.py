"""to come"""


def report() -> None:
    """to come"""
