"""Python's frames from text, words for numbers, and the facts that are read on this machine."""

from __future__ import annotations

import dataclasses
import struct
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.diagnosis import facts, python_frames, wording
from holdfast.diagnosis.causes import illegal_instruction
from holdfast.diagnosis.evidence import Mapping, Place, RaisedException
from holdfast.diagnosis.native.cpu import cpu_level
from holdfast.diagnosis.native.elf import machine_of as elf_machine_of

from .evidence_made import DATA, SHM, STACK, TRACEBACK, USER_FRAME, crashed, died, hung, raised

OURS = Path(holdfast.__file__).parent


def test_the_users_innermost_frame_is_found_in_a_stack_and_in_a_traceback() -> None:
    """Libraries, torch and holdfast are passed over, whichever end of the text is the innermost."""
    for frames in (python_frames.of_stack(STACK), python_frames.of_traceback(TRACEBACK)):
        assert frames[0].function == "decode"
        assert str(python_frames.innermost_of_user(frames)) == "my_dataset.py:31 in __getitem__"


def test_without_a_file_of_the_user_a_library_is_named() -> None:
    """Rather than torch or holdfast, which only called it; and rather them than nothing."""
    lines = [line for line in STACK.splitlines() if "my_dataset" not in line]
    assert str(python_frames.innermost_of_user(python_frames.of_stack("\n".join(lines)))) == "codec.py:7 in decode"
    only_torch = [line for line in lines if "torch" in line]
    assert str(python_frames.innermost_of_user(python_frames.of_stack("\n".join(only_torch)))) == "fetch.py:54 in fetch"
    assert python_frames.innermost_of_user([]) is None


def test_the_thread_at_fault_is_the_one_that_faulthandler_marks() -> None:
    """It writes the others before it, and Python 3.14 the C stack after it."""
    text = (
        f"Thread 0x1 (most recent call first):\n  <no Python frame>\n\nThread 0x3 [io] (most recent call first):\n"
        f'  File "/a.py", line 1 in other\n\n{STACK}\n'
        'Current thread\'s C stack trace (most recent call first):\n  Binary file "/lib/libc.so.6", at +0x3c050\n'
    )
    assert python_frames.of_stack(text)[0].function == "decode"
    assert python_frames.other_threads(text) == 1


WATCHER = f'''Thread 0x9 [holdfast-watch] (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 415 in select
  File "{OURS}/workers/recruit.py", line 120 in _go_with_main
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap
'''
POOL = """Thread 0x8 (most recent call first):
  File "/home/me/pool.py", line 3 in work
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap
"""


def test_where_no_thread_is_marked_it_is_the_main_one() -> None:
    """A signal that the main thread blocks comes to another, which writes all stacks, its own first."""
    main = STACK.replace("Current thread", "Thread")
    assert python_frames.of_stack(f"{WATCHER}\n{POOL}\n{main}")[0].function == "decode"
    assert python_frames.of_stack(f"{WATCHER.replace('Thread', 'Current thread')}\n{main}")[0].function == "decode"
    assert python_frames.of_stack(POOL)[0].function == "work"
    assert python_frames.of_stack(WATCHER) == []
    assert python_frames.other_threads(f"{WATCHER}\n{POOL}\n{main}") == 1


def test_of_a_crash_in_a_thread_that_is_not_there_no_other_is_named() -> None:
    """One of native code, or beyond the hundred that faulthandler writes: the others were only there."""
    main = STACK.replace("Current thread", "Thread")
    assert python_frames.of_stack(main) == []
    assert python_frames.of_stack(f"{main}\nCurrent thread 0x5 (most recent call first):\n  <no Python frame>\n") == []


PY_SPY = """\
Process 41: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 41 (idle): "MainThread"
    clock_nanosleep (libc.so.6)
    sleep_deaf (my_dataset.py:31)
    Strike.__call__ (my_dataset.py:9)
    0x7f00 (?)
Thread 42 (idle): "pool"
    work (pool.py:3)
"""


def test_python_frames_are_read_from_py_spy() -> None:
    """Of the first thread, without the native ones."""
    assert [str(frame) for frame in python_frames.of_py_spy(PY_SPY)] == [
        "my_dataset.py:31 in sleep_deaf",
        "my_dataset.py:9 in Strike.__call__",
    ]
    assert python_frames.of_py_spy("") == []


@pytest.mark.parametrize(
    ("lacks", "flags"),
    [
        (("amx_tile", "amx_int8"), "-mno-amx-tile -mno-amx-int8"),
        (("sse4_1",), "-mno-sse4.1"),
        (("avx_vnni", "sha_ni"), "-mno-avxvnni -mno-sha"),
        (("avx512f", "avx512_bf16"), "-march=x86-64-v3"),
        (("avx512f", "avx2"), "-march=x86-64-v2"),
    ],
)
def test_flags_are_in_the_compilers_words(lacks: tuple[str, ...], flags: str) -> None:
    assert illegal_instruction._flags(lacks) == flags


def test_flags_are_for_this_cpu_where_its_level_is_known() -> None:
    """One of level 2 lacks more than the instruction that it met."""
    found = [illegal_instruction._flags(("avx512f",), f"x86-64-v{level}") for level in (1, 2, 3)]
    assert found == ["-march=x86-64", "-march=x86-64-v2", "-march=x86-64-v3"]


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("/v/site-packages/cv2/cv2.abi3.so", "opencv-python"),
        ("/v/site-packages/PIL/_imaging.so", "pillow"),
        ("/v/site-packages/opencv_python_headless.libs/libavcodec.so", "opencv_python_headless"),
        ("/v/site-packages/mine/x.so", ""),
        ("/opt/x.so", ""),
    ],
)
def test_a_package_is_called_as_pip_calls_it(library: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install cv2` finds nothing, or something else."""
    known = {"cv2": ["opencv-python"], "PIL": ["pillow"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: known)
    assert facts.package_of(library) == package
    evidence = facts.gather(crashed(4, 2, place=Place(library, 1)))
    assert evidence.package == package
    assert evidence.cpu_level == cpu_level()


def frames_of(*files: str) -> list[python_frames.PythonFrame]:
    return [python_frames.PythonFrame(file, 1, "f") for file in files]


LOOP, PROCESS, MINE = f"{OURS}/workers/worker.py", "/usr/lib/python3.11/multiprocessing/process.py", "/home/me/data.py"
TORCH = "/venv/lib/python3.11/site-packages/torch/serialization.py"


@pytest.mark.parametrize(
    ("stack", "left"),
    [
        ((TORCH, MINE, LOOP, PROCESS, "/home/me/train.py"), (TORCH, MINE)),
        ((PROCESS, MINE, LOOP), (PROCESS, MINE)),
        ((MINE, "<frozen runpy>", PROCESS, "<string>"), (MINE,)),
        ((LOOP, LOOP, PROCESS, "/home/me/train.py"), (LOOP, LOOP)),
        ((MINE,), (MINE,)),
        ((), ()),
    ],
)
def test_of_a_stack_what_we_called_is_shown(stack: tuple[str, ...], left: tuple[str, ...]) -> None:
    """Neither our loop nor, of a forked worker, the training script that started it."""
    assert [frame.file for frame in python_frames.called_by_us(frames_of(*stack))] == [*left]


def test_of_chained_exceptions_the_last_is_read() -> None:
    """It is the one that was raised."""
    text = f"{TRACEBACK}\nDuring handling of the above exception, another exception occurred:\n\n" + TRACEBACK.replace(
        "line 31", "line 99"
    )
    assert [frame.line for frame in python_frames.of_traceback(text)] == [7, 99]


def test_a_recursion_is_a_frame_that_comes_again_and_again() -> None:
    """Two functions that call each other are one as well; three calls of one function are none."""
    frame = python_frames.PythonFrame("/a.py", 3, "walk")
    other = python_frames.PythonFrame("/a.py", 9, "step")
    assert python_frames.recursion([other, frame] * 30) in (frame, other)
    assert python_frames.recursion([frame] * 3) is None


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (4, 2, "ILL_ILLOPN"),
        (11, 1, "SEGV_MAPERR"),
        (7, 2, "BUS_ADRERR"),
        (8, 1, "FPE_INTDIV"),
        (11, 128, "SI_KERNEL"),
        (11, 0, "SI_USER"),
        (6, -6, "SI_TKILL"),
        (4, 99, "si_code 99"),
        (9, 1, "si_code 1"),
    ],
)
def test_codes_have_the_names_of_the_manual(number: int, code: int, name: str) -> None:
    """As sigaction(2) has them, for a user to search for."""
    assert wording.code_name(number, code) == name


def test_numbers_are_said_in_words() -> None:
    """Signals by name, and whatever comes from outside as one line."""
    assert [wording.signal_name(number) for number in (9, 11, 31, 99)] == ["SIGKILL", "SIGSEGV", "SIGSYS", "signal 99"]
    assert wording.one_line("a\n\x1b[31mb\x00" + "c" * 500, 20) == "a  [31mb cccccccc..."


class Stubborn(FileNotFoundError):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_exception_becomes_plain_data() -> None:
    """Its type, text, number and file, whatever its class does."""
    error = facts.describe(FileNotFoundError(2, "No such file", "/data/x"), TRACEBACK)
    assert (error.type, error.errno, error.filename) == ("builtins.FileNotFoundError", 2, "/data/x")
    assert error.bases == ("OSError", "Exception", "BaseException")
    assert "No such file" in error.message
    assert facts.describe(Stubborn(2, "x"), "").message == ""
    assert facts.describe(ValueError("bad"), "").errno is None
    assert facts.describe(_Unfinished("bad"), "").errno is None


def elf(machine: int, bits: int = 2) -> bytes:
    return b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9) + struct.pack("<HH", 3, machine)


def test_a_library_for_another_processor_is_recognised_by_its_header(tmp_path: Path) -> None:
    """dlopen says only "No such file" of it."""
    path = tmp_path / "libfast.so"
    path.write_bytes(elf(183 if elf_machine_of(sys.executable) != "aarch64" else 62))
    message = f"{path}: cannot open shared object file: No such file or directory"
    evidence = facts.gather(raised("builtins.OSError", message))
    assert "libfast.so is built for " in evidence.wrong_machine
    assert facts.wrong_machine_library(RaisedException("builtins.ImportError", "", "", filename=str(path)))
    assert not facts.wrong_machine_library(RaisedException("builtins.ValueError", message, ""))


def test_a_library_for_this_processor_is_no_reason(tmp_path: Path) -> None:
    """Nor is a file that is none, or is not there."""
    path = tmp_path / "libfast.so"
    message = f"{path}: undefined symbol: fast"
    assert facts.gather(raised("builtins.OSError", message)).wrong_machine == ""
    path.write_bytes(Path(sys.executable).read_bytes()[:64])
    assert facts.gather(raised("builtins.OSError", message)).wrong_machine == ""
    path.write_bytes(b"text")
    assert elf_machine_of(str(path)) is None
    assert elf_machine_of("/dev/null") is None


def test_the_size_of_a_mapped_file_is_read_after_a_bus_error(tmp_path: Path) -> None:
    """It proves that the file was cut; a file that is gone has none."""
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(1000))
    mapping = dataclasses.replace(DATA, path=str(path))
    evidence = facts.gather(crashed(7, 2, DATA.start, mappings=(mapping,)))
    assert evidence.mapped_file_bytes == 1000
    gone = Mapping(DATA.start, DATA.end, "r--s", 0, f"{path}.gone")
    assert facts.gather(crashed(7, 2, DATA.start, mappings=(gone,))).mapped_file_bytes is None


@pytest.mark.skipif(not Path("/dev/shm").is_mount(), reason="no /dev/shm here")
def test_the_room_on_a_tmpfs_is_read_after_a_bus_error() -> None:
    """Of the one that holds the file, wherever it is mounted."""
    evidence = facts.gather(crashed(7, 2, SHM.start))
    assert evidence.shared_memory_mount == facts.tmpfs_of("/dev/shm/psm_1") == "/dev/shm"
    assert (evidence.shared_memory_bytes or 0) >= (evidence.shared_memory_free_bytes or 0)
    assert facts.tmpfs_of("/proc/self/maps") == ""


def test_a_hang_gets_its_source_lines(tmp_path: Path) -> None:
    """So that `with self.lock:` is seen, which Python's stack alone does not show."""
    path = tmp_path / "mine.py"
    path.write_text("def f(lock):\n    with lock:\n        pass\n")
    evidence = facts.gather(hung(f'"{path}", line 2 in f', USER_FRAME))
    assert python_frames.of_stack(evidence.python_stack)[0].source == "with lock:"


def test_the_cpu_is_named_for_an_illegal_instruction_only() -> None:
    """No fact is read that no cause asks for."""
    assert facts.gather(died(4)).cpu == facts.cpu_name()
    assert facts.gather(died(11)) == died(11)


class _Unfinished(Exception):
    @property
    def errno(self) -> int:
        return int(self.args[1])
