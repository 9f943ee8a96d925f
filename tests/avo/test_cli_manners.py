"""How the command line behaves whatever the verb: pipes that close, help anywhere, nothing made by who only reads."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avo.cli import evidence
from avo.cli.trouble import explain
from avo.errors import UserMistake
from avo.files import write_text
from avo.launch import full_name
from dsl.wording import counted

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parents[1] / "plugin_package" / "avo_example"


def test_a_pipe_that_closes_ends_a_verb_in_silence(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "avo", "targets"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as `head` does, before a word is written
    assert process.wait(timeout=60) == 141 and process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["evolve", "--targets", "--help"], "avo evolve [OPTIONS]"),
        (["--debug", "eval", "x.avo", "--hw", "-h"], "avo eval [OPTIONS] {FILE}"),
        (["archive", "gc", "--drop", "--help"], "avo archive gc [OPTIONS]"),
    ],
)
def test_help_is_no_value_of_an_option(cli: Callable[..., Any], arguments: list[str], usage: str) -> None:
    answer = cli(*arguments)
    assert answer.code == 0 and answer.out.startswith(f"Usage: {usage}"), answer


def test_a_verb_that_is_built_alone_reads_as_among_all(cli: Callable[..., Any]) -> None:
    page = " ".join((ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split())
    for arguments in ([], ["log"], ["archive"], ["archive", "gc"], ["replay-budget"]):
        assert " ".join(cli(*arguments, "--help").out.split()) in page
    assert cli("lgo").err.startswith("error: unknown verb 'lgo'; did you mean 'log'?")


@pytest.mark.parametrize("name", ["no/such/a.db", "sqlite:///no/such/a.db"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("log",),
        ("status",),
        ("tree",),
        ("report",),
        ("show", "1/0"),
        ("archive", "check"),
        ("archive", "gc"),
        ("ask",),
        ("evolve", "--resume"),
        ("evolve", "--join"),
        ("evolve", "--targets", "softmax,rmsnorm", "--resume"),
    ],
    ids=" ".join,
)
def test_nobody_who_looks_for_an_archive_makes_one(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli(*arguments, "--archive", name)
    assert answer.code == 2 and "no archive at no/such/a.db" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_python_does_not_make_an_archive_to_resume_from(tmp_path: Path) -> None:
    import avo
    from archive import ArchiveError

    with pytest.raises(ArchiveError, match="there is no archive at"):
        avo.resume(archive=tmp_path / "no" / "a.db")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_there_are_refused_before_the_work(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("mine")
    for line in (["import", "none.py:f", "--hw", "h200"], ["lower", "none.avo", "--hw", "h200"]):
        answer = cli(*line, "-o", "there")
        assert answer.code == 2 and answer.err == "error: there is there already; --force overwrites it\n"
    assert cli("import", "none.py:f", "--hw", "h200", "--target", "there").err.startswith("error: there is there")
    assert cli("export", "1/0", "-o", "there").err == "error: there is no folder; a package is one\n"
    assert cli("export", "1/0", "-o", "/dev/null", "--force").err == "error: /dev/null is no folder; a package is one\n"
    assert "tmp is there already and not empty" in cli("export", "1/0", "-o", "/tmp").err
    assert Path("there").read_text() == "mine"


def test_eval_says_which_target_it_assumes(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "p.avo").write_text("kernel twice\nin x[r c] bf16\nout y[r c] bf16\ny = x * 2\n")
    answer = cli("eval", tmp_path / "p.avo", "--json")
    assert answer.code == 1 and answer.err.startswith("judged as attention, for no --target was named")
    answer = cli("eval", tmp_path / "p.avo", "--target", "attention")
    assert answer.code == 1 and answer.err == ""


def test_what_cannot_go_together_is_told(cli: Callable[..., Any]) -> None:
    answer = cli("report", "--serve", "--json")
    assert (answer.code, answer.err) == (2, "error: --serve serves the page and --json prints; give one of them\n")


def test_a_target_without_a_summary_has_no_colon(cli: Callable[..., Any], tmp_path: Path) -> None:
    text = (EXAMPLE / "target.py").read_text()
    assert "    summary=" in text
    (tmp_path / "bare.py").write_text("\n".join(row for row in text.splitlines() if not row.startswith("    summary=")))
    assert cli("targets", tmp_path / "bare.py").out.startswith("row_l2\n\nscore ")
    assert cli("targets", EXAMPLE / "target.py").out.startswith("row_l2: ")


def test_a_run_that_has_ended_is_not_joined_and_its_steps_are_told(cli: Callable[..., Any], evolved: Path) -> None:
    Path("avo-report-1.html").unlink()
    joined = cli("evolve", "--join")
    assert joined.code == 0
    assert joined.out == (
        "run 1 has ended (all steps are done), so nothing is left to join; avo evolve --resume 1 --steps N goes on "
        "with it\n"
    )
    assert not Path("avo-report-1.html").exists()
    assert "steps     4 of 4; ok" in cli("status").out
    assert cli("evolve", "--join", "--steps", 5).code == 0
    assert "steps     5, begun with 4; ok" in cli("status").out


def test_things_are_counted_in_words() -> None:
    assert [counted(n, "run") for n in (0, 1, 2, 100_000)] == ["0 runs", "1 run", "2 runs", "100,000 runs"]
    assert [counted(n, "minute") for n in (1.0, 2.5)] == ["1 minute", "2.5 minutes"]
    assert counted(2, "proposal without a gain") == "2 proposals without a gain"
    assert [counted(n, "axis", "axes") for n in (1, 3)] == ["1 axis", "3 axes"]


def test_a_page_that_cannot_be_written_is_told_and_ends_no_run(
    cli: Callable[..., Any], evolved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in ("run.toml/a.html", "/dev/null/a.html"):
        Path("run.toml").touch()
        answer = cli("report", "--html", page)
        assert answer.code == 2 and answer.err.startswith(f"error: cannot write {page}: Not a directory; --html PATH")
    Path("avo-report-1.html").unlink()
    Path("avo-report-1.html").mkdir()
    answer = cli("evolve", "--resume", "--steps", 5)
    assert answer.code == 0
    assert "report: none, cannot write avo-report-1.html: Is a directory; avo report 1 --html PATH" in answer.out

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for act in ("open", "unlink"):  # a read-only file system refuses both
        monkeypatch.setattr(Path, act, refused)
    with pytest.raises(UserMistake, match=r"^cannot write a\.html: Read-only file system$"):
        write_text(Path("a.html"), "text", force=True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EROFS, "no", "a/b"), "the file system is read-only (a/b); write somewhere else"),
        (OSError(errno.EMFILE, "no"), "too many files are open; raise `ulimit -n` and try again"),
        (OSError(errno.ENOSPC, "no", "a"), "the disk is full (a); free some space and try again"),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
            "there is no folder for temporary files; set TMPDIR to one that can be written to",
        ),
    ],
)
def test_what_the_machine_lacks_is_no_bug(error: OSError, said: str) -> None:
    assert explain(error) == (3, f"unavailable: {said}")
    assert "this is a bug in avo" in explain(FileNotFoundError(errno.ENOENT, "no", "a"))[1]


@pytest.mark.parametrize(("encoding", "form"), [("ascii", []), ("utf-8", ["--json"])])
def test_a_terminal_is_told_what_it_has_no_character_for(encoding: str, form: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad\udcff.avo").write_text("kernel twice\nin x[r c] bf16\nout y[r c] bf16\ny = z * 2  # − 😀\n")
    said = subprocess.run(
        [sys.executable, "-m", "avo", "check", "bad\udcff.avo", *form],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"},
    )
    assert said.returncode == 1 and said.stderr == b""
    text = said.stdout.decode(encoding)
    if form:
        assert json.loads(text)["path"] == "bad\udcff.avo"
    else:
        assert r"bad\udcff.avo:4:5: error" in text and r"y = z * 2  # \u2212 \ud83d\ude00" in text


def test_a_folder_whose_name_is_no_text_is_a_folder(
    cli: Callable[..., Any], evolved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = evolved / "n\udcff"
    folder.mkdir()
    shutil.copy("avo.db", folder)
    shutil.copy(EXAMPLE / "target.py", folder)
    monkeypatch.chdir(folder)
    assert cli("log").out == cli("log", "--archive", folder / "avo.db").out
    assert cli("report", "--no-html").code == 0
    # An archive keeps no such path: the target is found again from the same folder.
    assert full_name("target.py:TARGET") == "target.py:TARGET"
    monkeypatch.chdir(evolved)
    assert full_name("target.py:TARGET") == f"{evolved}/target.py:TARGET"


def test_what_is_piped_in_is_utf_8_whatever_the_locale_says(
    cli: Callable[..., Any], evolved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.BytesIO(cli("archive", "export").out.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given, encoding="ascii"))
    assert cli("archive", "import", "-", "--archive", "new.db").code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="ascii"))
    assert "not UTF-8 text" in cli("archive", "import", "-", "--archive", "new.db").err


def test_a_file_that_leaves_the_process_does_not_decide_the_exit_code(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text("import sys\ndef f(x):\n    sys.exit()\n")
    answer = cli("import", tmp_path / "leaves.py:f", "--hw", "b200", "--shapes", "x[r=8 c=8] f32")
    assert answer.code == 2 and "leaves.py, line 3 raised SystemExit: no message" in answer.err


def test_ctrl_c_while_the_command_line_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    line = [sys.executable, "-m", "avo", "log"]
    process = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "stopped\n")


def test_ctrl_c_between_the_entry_and_the_command_line(tmp_path: Path) -> None:
    """Before `main` has begun to answer for itself, and after it has ended."""
    lines = "import avo.cli\ndef stopped(): raise KeyboardInterrupt\navo.cli.main = stopped\n"
    code = lines + "import avo.__main__\navo.__main__.main()\n"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "stopped\n")


def test_the_entry_imports_nothing_that_takes_time() -> None:
    """What it imports is what a Ctrl-C may meet before anybody answers it."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import __future__, os, re, signal; before = set(sys.modules)\n"
        "import avo.__main__; print(*sorted(set(sys.modules) - before))"
    )
    process = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert process.stdout.split() == ["avo", "avo.__main__"], process.stderr


def test_a_field_that_a_plugin_leaves_out_is_named(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "from avo import Evaluation, WorkloadResult\n"
        "class Judge:\n"
        "    def evaluate(self, text, target, hardware):\n"
        "        return Evaluation(status='ok', workloads=(WorkloadResult(workload='a', work=1.0, floor_s='b'),))\n"
        "    def close(self): pass\n"
    )
    (tmp_path / "p.avo").write_text("kernel twice\nin x[r c] bf16\nout y[r c] bf16\ny = x * 2\n")
    answer = cli("eval", tmp_path / "p.avo", "--target", "rmsnorm", "--evaluator", tmp_path / "judge.py")
    assert answer.code == 2
    assert "judge.py, line 4 raised ValidationError: WorkloadResult: floor_s: input should be a valid" in answer.err
    assert "; bottleneck: field required (docs/reference.md lists the fields); with --debug" in answer.err


def test_small_mistakes_are_told_for_what_they_are(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init").code == 0
    assert cli("init").err == "error: my_target.py and run.toml are there already; --force overwrites them\n"
    Path("run.toml").unlink()
    assert cli("init").err == "error: my_target.py is there already; --force overwrites it\n"
    assert "wants two or more different targets" in cli("evolve", "--targets", "attention,,softmax").err
    for limit in ("inf", "nan"):
        assert "a finite number" in cli("evolve", "--minutes", limit).err or limit == "nan"
        assert cli("evolve", "--minutes", limit).code == 2
        assert cli("evolve", "--max-usd", limit).code == 2
    Path("bad.py").write_text(Path("my_target.py").read_text().replace('unit="GB/s"', 'unit="F"'))
    answer = cli("targets", "bad.py")
    assert answer.code == 2 and "unit is 'F'; legal: TFLOP/s, GB/s" in answer.err
    Path("folder.py").mkdir()
    assert "folder.py is a folder; name a file" in cli("targets", "folder.py").err
    assert (
        evidence.line("nothing", {"launches": 10, "state": "", "kept": None, "level": "full"})
        == "launches 10, level full"
    )
