"""benchmarks/examples_on_device.py, in the judge's interpreter: what counts as right, as refused and as wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from avo.importing.tracing import NotImported, Trouble

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_on_device", ROOT / "benchmarks" / "examples_on_device.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TROUBLE = Trouble("empty_permuted", 7, "nothing is filled part by part; torch.cat the parts")


def test_what_cannot_be_imported_counts_as_refused(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(script.plain_functions().REFUSED) == {"rope_filled", "rope_complex"} < set(script.functions())
    text, wrong, error = script.judged(("function", "rope_complex", "h200", True))
    assert text.startswith("refused, as it should be: input turn is torch.complex64") and (wrong, error) == ("", "")

    def refused(name: str, *more: object) -> None:
        raise NotImported("functions.py", [TROUBLE], ["y = torch.empty_like(x)"] * 8)

    monkeypatch.setattr(script, "of_function", refused)
    text, wrong, error = script.judged(("function", "rope_filled", "h200", True))
    assert text == f"refused, as it should be: {TROUBLE.why}" and (wrong, error) == ("", "")
    text, wrong, error = script.judged(("function", "rope", "h200", True))
    assert text == f"refused: {TROUBLE.why}" and wrong == "rope"
    assert "functions.py:7" in error and "y = torch.empty_like(x)" in error and "Traceback" not in error


def test_what_imports_though_it_is_listed_as_refused_is_wrong(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ModuleType("plain_functions")
    listed.REFUSED = ("layernorm_by_hand",)  # type: ignore[attr-defined]
    monkeypatch.setattr(script, "of_function", lambda *job: {"y": (5.6e-08, False)})
    assert script.judged(("function", "layernorm_by_hand", "h200", True)) == ("y 5.6e-08", "", "")
    monkeypatch.setattr(script, "plain_functions", lambda: listed)
    text, wrong, _ = script.judged(("function", "layernorm_by_hand", "h200", True))
    assert text == "y 5.6e-08, though it is listed as refused" and wrong == "layernorm_by_hand"


def test_an_error_of_the_program_is_wrong_with_its_traceback(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert script.judged(("example", "mxfp4_gemm", "h200", True))[0].startswith("not lowered: ")

    def broken(*job: object) -> None:
        raise RuntimeError("illegal address")

    monkeypatch.setattr(script, "of_example", broken)
    text, wrong, error = script.judged(("example", "rmsnorm", "h200", True))
    assert text == "RuntimeError: illegal address" and wrong == "rmsnorm" and "Traceback" in error
