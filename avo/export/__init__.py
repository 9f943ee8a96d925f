"""From candidates to a package that others import: kernels, dispatch, reference, tests, provenance. Needs no avo."""

from avo.export.evidence import Variant, variant_of_benchmark, variant_of_candidate, variant_of_judgement
from avo.export.package import Package, build, useful, write

__all__ = [
    "Package",
    "Variant",
    "build",
    "useful",
    "variant_of_benchmark",
    "variant_of_candidate",
    "variant_of_judgement",
    "write",
]
