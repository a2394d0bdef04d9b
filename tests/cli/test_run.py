"""`holdfast run` as a way to run a script: everything that is Python's business is as under `python SCRIPT`.

Nothing here needs torch. With loaders, and with frameworks: test_run_training.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from holdfast.cli.run import run
from holdfast.tasks.runner import starting
from holdfast.tasks.runner.settings import Settings

LIMIT_S = 60.0
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "run.json"
HOLDFAST_RUN = ("-m", "holdfast", "run")


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, to its end."""
    command = [sys.executable, *arguments]
    environment = os.environ | variables
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd, env=environment
    )


def holdfast_run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return python(*HOLDFAST_RUN, *arguments, cwd=cwd, **variables)


def without_summary(stderr: str) -> str:
    return stderr.partition("holdfast run: ")[0]


def heed_interrupts() -> None:
    """A shell has its background jobs ignore SIGINT, and they hand that down; a program of a user's has it not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def started(*arguments: str, cwd: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Python with these arguments, which is to be sent a signal. It is killed if that did not end it."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | variables,
        preexec_fn=heed_interrupts,  # noqa: PLW1509  (it makes one system call)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """An empty directory with nothing about holdfast above it."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


# --- as under python ----------------------------------------------------------------------------------------------

WAYS_TO_END = {
    "ends": "print('done')",
    "exits": "import sys; sys.exit(3)",
    "exits with words": "import sys; sys.exit('no such data')",
    "raises": "def f():\n    raise ValueError('bad')\nf()",
    "raises from another": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "has an error of syntax": "x = = 1",
    "is interrupted": "raise KeyboardInterrupt",
    "leaves at once": "import os; os._exit(4)",
    "segfaults": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "aborts": "import os; os.abort()",
    "has a hook for errors": "import sys; sys.excepthook = lambda *e: print('mine', e[1]); raise ValueError('bad')",
}


@pytest.mark.parametrize("how", WAYS_TO_END)
def test_a_script_ends_as_under_python(here: Path, how: str) -> None:
    """Status or signal, what it printed, and the traceback, to the letter; the summary comes after that, if at all."""
    (here / "script.py").write_text(WAYS_TO_END[how])
    plain, ours = python("script.py", cwd=here), holdfast_run("script.py", cwd=here)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert without_summary(ours.stderr) == plain.stderr
    is_cut_off = plain.returncode == 4 or (plain.returncode < 0 and plain.returncode != -signal.SIGINT)
    assert ("holdfast run: script.py" in ours.stderr) != is_cut_off


TELL = """
import json, os, sys
import __main__
names = ["__name__", "__file__", "__package__", "__doc__", "__cached__"]
told = {name: repr(getattr(__main__, name, "none")) for name in names}
told |= {"spec": getattr(__main__.__spec__, "name", None), "argv": sys.argv, "path": sys.path, "flags": str(sys.flags)}
told |= {"names": sorted(vars(__main__)), "stdin": sys.stdin.read(), "same": sys.modules["__main__"] is __main__}
if __name__ == "__main__":
    print(json.dumps(told))
"""


@pytest.mark.parametrize(
    "program",
    [
        ["tell.py"],
        ["./tell.py", "--on-error", "skip", "-m", "--", "-h", "--quiet"],
        ["-m", "package.tell", "--help", "x"],
        ["-m", "package"],
        ["package"],
    ],
    ids=" ".join,
)
def test_a_script_sees_what_it_sees_under_python(here: Path, program: list[str]) -> None:
    """`__main__`, its file and spec, argv, the path, flags and names: all equal. What follows the script is its own."""
    (here / "tell.py").write_text(TELL)
    (here / "package").mkdir()
    for name in ("tell.py", "__init__.py", "__main__.py"):
        (here / "package" / name).write_text("" if name == "__init__.py" else TELL)
    plain, ours = python(*program, cwd=here), holdfast_run(*program, cwd=here)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert ours.stdout == plain.stdout
    assert ours.returncode == 0


def test_flags_of_python_are_the_scripts_too(here: Path) -> None:
    """`python -O -W error -X dev -m holdfast run`."""
    (here / "tell.py").write_text(TELL)
    flags = ["-O", "-W", "error", "-X", "utf8"]
    assert python(*flags, *HOLDFAST_RUN, "tell.py", cwd=here).stdout == python(*flags, "tell.py", cwd=here).stdout


WAIT = "import time\nwhile True:\n    time.sleep(0.01)"
"""For a signal. Not `signal.pause()`: one that comes a moment before that is waited for in vain."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1], ids=str)
def test_a_signal_reaches_the_script_itself(here: Path, number: signal.Signals) -> None:
    """There is no process between: the one that was started is the script's, and it dies of the signal."""
    (here / "wait.py").write_text(f"import os\nprint(os.getpid(), flush=True)\n{WAIT}")
    ends = {}
    for name, words in {"plain": (), "ours": HOLDFAST_RUN}.items():
        with started(*words, "wait.py", cwd=here) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{process.pid}\n"
            process.send_signal(number)
            _, stderr = process.communicate(timeout=LIMIT_S)
            ends[name] = process.returncode, without_summary(stderr).splitlines()[-1:]
    assert ends["ours"] == ends["plain"] == (-number, ["KeyboardInterrupt"] if number == signal.SIGINT else [])


def test_a_handler_of_the_script_has_the_signal(here: Path) -> None:
    """SIGTERM, as a scheduler sends it: the script saves and exits with its own status, and the summary follows."""
    script = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('on', flush=True)\n"
    (here / "wait.py").write_text(f"{script}{WAIT}")
    with started(*HOLDFAST_RUN, "wait.py", cwd=here) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.terminate()
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7
    assert "holdfast run: wait.py" in stderr


def test_ctrl_c_in_a_terminal_interrupts_the_script(here: Path) -> None:
    """In a real terminal, where the key goes to the whole group: one traceback, and no job is left in the shell."""
    pexpect = pytest.importorskip("pexpect")
    (here / "wait.py").write_text(f"print('on', flush=True)\n{WAIT}")
    how: dict[str, Any] = {"cwd": here, "timeout": LIMIT_S, "encoding": "utf-8", "preexec_fn": heed_interrupts}
    child = pexpect.spawn(sys.executable, [*HOLDFAST_RUN, "wait.py"], **how)
    try:
        child.expect_exact("on")
        child.sendintr()
        child.expect(pexpect.EOF)
        said = child.before
        child.wait()
    finally:
        child.close()
    assert child.signalstatus == signal.SIGINT
    assert said.count("KeyboardInterrupt") == 1
    assert "no DataLoader was used" in said
    assert "\x1b" not in said


def test_a_script_without_torch_does_not_import_it(here: Path) -> None:
    """Nor anything of the loader."""
    (here / "script.py").write_text(
        "import sys; print([name for name in ('torch', 'numpy', 'holdfast.loader') if name in sys.modules])"
    )
    assert holdfast_run("script.py", cwd=here).stdout == "[]\n"


def test_the_users_own_sitecustomize_is_imported_too(here: Path) -> None:
    """Ours takes its name, imports it, and is out of the way."""
    (here / "sitecustomize.py").write_text("mine = 1")
    (here / "script.py").write_text("import sitecustomize; print(sitecustomize.mine)")
    paths = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
    assert holdfast_run("script.py", cwd=here, PYTHONPATH=paths).stdout == "1\n"


def test_only_the_script_sums_up(here: Path) -> None:
    """A Python that it starts, and a fork that exits as a process does, say nothing."""
    lines = ["import os, subprocess, sys", "subprocess.run([sys.executable, '-c', '1'], check=True)"]
    lines += ["if (pid := os.fork()) == 0: sys.exit(0)", "os.waitpid(pid, 0)"]
    (here / "script.py").write_text("\n".join(lines))
    done = holdfast_run("script.py", cwd=here)
    assert done.returncode == 0
    assert done.stderr.count("holdfast run: ") == 1


# --- the summary --------------------------------------------------------------------------------------------------


def summary_of(file: Path) -> dict[str, Any]:
    """What `--json` wrote, which is as the schema says."""
    data: dict[str, Any] = json.loads(file.read_text())
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    return data


def test_the_summary_is_also_written_as_data(here: Path) -> None:
    """Where it was asked for, although the script went elsewhere; and also if the script fails."""
    (here / "script.py").write_text("import os; os.chdir('/'); raise ValueError")
    done = holdfast_run("--json", "sum.json", "script.py", cwd=here)
    assert done.returncode == 1
    data = summary_of(here / "sum.json")
    assert (data["program"], data["loaders"], data["report"]) == ("script.py", 0, None)


def test_quiet_says_nothing(here: Path) -> None:
    """The script's own words are all there is; the table can ask for it too, and a flag undo that."""
    (here / "script.py").write_text("print('done')")
    assert holdfast_run("--quiet", "script.py", cwd=here).stderr == ""
    (here / "pyproject.toml").write_text("[tool.holdfast]\nquiet = true")
    assert holdfast_run("script.py", cwd=here).stderr == ""
    assert "holdfast run: " in holdfast_run("--no-quiet", "script.py", cwd=here).stderr


def test_a_summary_that_fails_changes_nothing(here: Path) -> None:
    """The directory for the JSON is gone when it is to be written: one line says so, the status is the script's."""
    (here / "gone").mkdir()
    (here / "script.py").write_text("import os, sys; os.rmdir('gone'); sys.exit(5)")
    done = holdfast_run("--json", "gone/sum.json", "script.py", cwd=here)
    assert done.returncode == 5
    assert done.stderr.startswith("holdfast run: no summary: FileNotFoundError")
    assert len(done.stderr.splitlines()) == 1


def test_a_summary_that_nobody_can_read_changes_nothing(here: Path) -> None:
    """The script has closed stderr."""
    (here / "script.py").write_text("import sys; sys.stderr.close(); sys.exit(5)")
    assert holdfast_run("script.py", cwd=here).returncode == 5


# --- wrong usage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Name a script, as in: holdfast run train.py"),
        (["-m"], "Name a module, as in: holdfast run -m"),
        (["none.py"], "There is no file none.py: name a script that exists, or a module with -m"),
        (["script"], "There is no file script. Did you mean -m script?"),
        (["folder"], "folder is a directory without a __main__.py"),
        (["data.bin"], "data.bin is not a Python file"),
        (["-m", "no_such_module"], "There is no module 'no_such_module'"),
        (["-m", "script.py"], "A file is run without -m"),
        (["-m", "xml"], "xml is a package without a __main__"),
        (["-m", "xml.nothing"], "There is no module 'xml.nothing'"),
        (["-m", "not a name"], "There is no module 'not a name'"),
        (["--on-eror", "skip", "script.py"], "--on-error"),
        (["--on-error", "ignore", "script.py"], "'ignore' is not one of 'raise', 'skip', 'replace'"),
        (["--max-skipped", "1.5", "script.py"], "a share of the epoch from 0.0 to 1.0"),
        (["--max-retries", "-1", "script.py"], "whole number, 0 or more"),
        (["--recycle-after", "0", "script.py"], "1 or more"),
        (["--sample-timeout", "soon", "script.py"], "a number of seconds above 0"),
        (["--memory-limit", "4XB", "script.py"], 'a size such as "4GB"'),
        (["--memory-budget", "120%", "script.py"], "at most 100%"),
        (["--retry-on", "OSError,Nope", "script.py"], "'Nope' is no exception of Python's own"),
        (["--skipped-file", "bad.jsonl", "script.py"], 'needs on_error "skip" or "replace"'),
        (["--on-error", "skip", "--skipped-file", "no/bad.jsonl", "script.py"], "there is no directory"),
        (["--on-error", "skip", "--skipped-file", "folder", "script.py"], "is a directory: name a regular file"),
        (["--dataset", "script", "script.py"], "not of the form MODULE:DATASET"),
        (["--dataset", "no_such_module:x", "script.py"], "there is no module 'no_such_module'"),
        (["--dataset", "none.py:x", "script.py"], "there is no file 'none.py'"),
        (["--config", "none.toml", "script.py"], "none.toml cannot be read"),
        (["--config", "empty.toml", "script.py"], "has no [tool.holdfast] table"),
        (["--json", "no/sum.json", "script.py"], "no/sum.json is no file in a directory that exists"),
    ],
)
def test_wrong_usage_is_said_before_anything_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """Exit status 2, the argument, the remedy; the script has not run."""
    (here / "script.py").write_text("")
    (here / "folder").mkdir()
    (here / "data.bin").write_bytes(b"\x7fELF\x00\x01")
    (here / "empty.toml").write_text("")
    monkeypatch.chdir(here)
    monkeypatch.setattr(starting, "become", lambda *_: pytest.fail("it was run"))
    done = CliRunner().invoke(run, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_wrong_usage_ends_with_2(here: Path) -> None:
    """As a user meets it: a line on stderr, nothing on stdout, no traceback."""
    done = holdfast_run("none.py", cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Error: There is no file none.py")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("on_eror = 'skip'", "'on_eror' is no option; did you mean 'on_error'?"),
        ("workers = 3", "'workers' is no option: there are on_error, max_retries"),
        ("on_error = 'ignore'", "on_error='ignore' is not one of 'raise', 'skip', 'replace'"),
        ("sample_timeout = false", "sample_timeout=False must be a number of seconds"),
        ("record = 'no'", "record='no' must be True or False"),
        ("quiet = 1", "quiet=1 must be True or False"),
        ("skipped_file = 3", "skipped_file=3 must be the path of a file"),
        ("dataset = 3", "MODULE:DATASET"),
        ("on_error =", "is no TOML"),
    ],
)
def test_what_is_wrong_in_the_table_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, table: str, said: str
) -> None:
    """File, key and remedy."""
    (here / "script.py").write_text("")
    (here / "pyproject.toml").write_text(f"[tool.holdfast]\n{table}\n")
    monkeypatch.setattr(starting, "become", lambda *_: pytest.fail("it was run"))
    done = CliRunner().invoke(run, [str(here / "script.py")])
    assert done.exit_code == 2
    assert said in done.stderr
    assert "pyproject.toml" in done.stderr


def test_a_python_that_ignores_its_environment_is_refused(here: Path) -> None:
    """Rather than a script that runs without us, and nobody notices."""
    (here / "script.py").write_text("open('ran', 'w')")
    source = Path(__file__).parents[2] / "src"
    code = f"import sys; sys.path.insert(0, {str(source)!r}); from holdfast.cli.main import main; main()"
    done = python("-E", "-c", code, "run", "script.py", cwd=here)
    assert done.returncode == 2
    assert "Run holdfast without" in done.stderr


# --- which options ------------------------------------------------------------------------------------------------


def test_the_nearest_table_is_taken_and_flags_win(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the script's directory upward, whatever the current one is; the first file, with a table or not."""
    (here / "project" / "sub").mkdir(parents=True)
    (here / "project" / "sub" / "script.py").write_text("")
    (here / "pyproject.toml").write_text("[tool.holdfast]\non_error = 'replace'")
    (here / "project" / "pyproject.toml").write_text(
        "[tool.holdfast]\non-error = 'skip'\nsample_timeout = 30\nskipped_file = 'bad.jsonl'\nrecord = false\n"
        "memory_limit = '2MB'\nmemory_budget = '80%'\nmax_skipped = 0.5\nretry_on = ['OSError']\nrng = 'sample'"
    )
    script = "project/sub/script.py"
    monkeypatch.chdir(here)
    told: list[Settings] = []
    monkeypatch.setattr(starting, "become", lambda program, settings, target: told.append(settings))

    def options_of(*arguments: str) -> dict[str, Any]:
        """What a script's loaders will be told."""
        done = CliRunner().invoke(run, arguments)
        assert done.exit_code == 0, done.stderr
        return told[-1].loader_options

    table = {
        "on_error": "skip",
        "sample_timeout": 30,
        "skipped_file": str(here / "project" / "bad.jsonl"),
        "record": False,
        "memory_limit": 2_000_000,
        "memory_budget": "80%",
        "max_skipped": 0.5,
        "retry_on": ["OSError"],
        "rng": "sample",
    }
    assert options_of(script) == table
    flags = ["--on-error=replace", "--max-skipped", "3", "--record", "--skipped-file", "b.jsonl"]
    changed = {"on_error": "replace", "max_skipped": 3, "record": True, "skipped_file": str(here / "b.jsonl")}
    assert options_of(*flags, script) == table | changed
    for word in ("auto", "none"):
        assert options_of("--max-skipped", word, script) == table | {"max_skipped": word}
    (here / "project" / "sub" / "pyproject.toml").write_text("")
    assert options_of(script) == {}
    assert options_of("--config", "pyproject.toml", script) == {"on_error": "replace"}


def test_a_file_with_the_dataset_is_remembered_by_its_whole_path(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`holdfast replay` may be run elsewhere. In a table it is relative to that file, on the command line to here."""
    (here / "project").mkdir()
    for file in ("script.py", "data.py", "project/script.py", "project/data.py"):
        (here / file).write_text("")
    (here / "project" / "pyproject.toml").write_text("[tool.holdfast]\ndataset = 'data.py:train'")
    monkeypatch.chdir(here)
    told: list[str | None] = []
    monkeypatch.setattr(starting, "become", lambda program, settings, target: told.append(target))
    for arguments in (
        ["project/script.py"],
        ["--dataset", "data.py:train", "script.py"],
        ["--dataset", "os:x", "script.py"],
    ):
        assert CliRunner().invoke(run, arguments).exit_code == 0
    assert told == [f"{here}/project/data.py:train", f"{here}/data.py:train", "os:x"]
