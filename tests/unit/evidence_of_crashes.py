"""What native crashes leave behind, and what is to be said of it. Runs in: the test process."""

from __future__ import annotations

import dataclasses
import errno

from .evidence_made import (
    AVX512,
    CERTAIN,
    DATA,
    DEEP,
    IN_LIBRARY,
    LIKELY,
    MEMFD,
    MIB,
    NOWHERE,
    OVERFLOW,
    PID,
    POSSIBLE,
    SHM,
    SIGABRT,
    SIGBUS,
    SIGFPE,
    SIGILL,
    SIGSEGV,
    STACK_BYTES,
    Seen,
    crashed,
    died,
    exited,
    raised,
    room,
)

CRASHES = [
    # shared memory full
    Seen(
        crashed(SIGBUS, 2, SHM.start + 5000, **room("/dev/shm", 0)),
        "shared memory full",
        CERTAIN,
        ("/dev/shm/psm_1", "/dev/shm has 64.0 MiB, of which 0 bytes were free", "--shm-size"),
    ),
    Seen(crashed(SIGBUS, 2, SHM.start), "shared memory full", LIKELY),
    Seen(crashed(SIGBUS, 2, SHM.start, **room("/dev/shm", MIB)), "shared memory full", LIKELY),
    Seen(crashed(SIGBUS, 2, SHM.start, **room("/dev/shm", 60 * MIB)), "shared memory full", POSSIBLE),
    Seen(crashed(SIGBUS, 2, DATA.start, **room("/data", 0)), "shared memory full", CERTAIN, ("remount,size=8g /data",)),
    Seen(crashed(SIGBUS, 2, SHM.start + 5000, mapped_file_bytes=4096), "bus error on a truncated file", CERTAIN),
    Seen(crashed(SIGBUS, 2, MEMFD.start), "shared memory full", LIKELY, ("/memfd:cache",)),
    Seen(died(SIGBUS), "shared memory full", POSSIBLE, ("bus error",)),
    Seen(
        raised("builtins.OSError", "[Errno 28] No space left on device: '/dev/shm/x'", errno=28, filename="/dev/shm/x"),
        "shared memory full",
        LIKELY,
    ),
    Seen(
        raised("builtins.OSError", "No space left", errno=28, filename="/dev/shm/x", **room("/dev/shm", 4096)),
        "shared memory full",
        CERTAIN,
        ("of which 4.0 KiB were free",),
    ),
    Seen(
        raised("builtins.RuntimeError", "unable to write to file </torch_12_3>: No space left on device (28)"),
        "shared memory full",
        LIKELY,
    ),
    # bus error on a truncated file
    Seen(
        crashed(SIGBUS, 2, DATA.start + 0x100, mapped_file_bytes=1000),
        "bus error on a truncated file",
        CERTAIN,
        ("/data/train.bin has 1000 bytes", "byte 16640"),
    ),
    Seen(crashed(SIGBUS, 2, DATA.start, mapped_file_bytes=1 << 30), "bus error on a truncated file", LIKELY),
    Seen(
        crashed(SIGBUS, 2, NOWHERE, **room("/dev/shm", 60 * MIB)),
        "bus error on a truncated file",
        POSSIBLE,
        ("which file it was is not known", "my_dataset.py:31"),
    ),
    Seen(
        crashed(SIGBUS, 2, NOWHERE, **room("/dev/shm", 0)),
        "shared memory full",
        LIKELY,
        ("shared memory is full", "were free just after", "also possible, bus error on a truncated file"),
    ),
    # segmentation fault
    Seen(
        crashed(SIGSEGV),
        "segmentation fault",
        CERTAIN,
        ("read of address 0x0 (a null pointer)", "my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block"),
    ),
    Seen(crashed(SIGSEGV, 1, 0x7F9900000000, 6), "segmentation fault", CERTAIN, ("write of address 0x7f9900000000",)),
    Seen(
        crashed(SIGSEGV, 2, DATA.start, 21), "segmentation fault", CERTAIN, ("execution of", "/data/train.bin (rw-s)")
    ),
    Seen(crashed(SIGSEGV, 0x80, 0), "segmentation fault", CERTAIN, ("no program can have", "SI_KERNEL")),
    Seen(crashed(SIGSEGV, -6, None, sender_pid=PID), "segmentation fault", CERTAIN, ("sent SIGSEGV to itself",)),
    Seen(died(SIGSEGV, missing=("registers: not on this platform",)), "segmentation fault", LIKELY, ("not available",)),
    Seen(exited(0xC0000005), "segmentation fault", CERTAIN, ("0xc0000005",)),
    # stack overflow
    Seen(
        crashed(SIGSEGV, 1, **OVERFLOW, python_stack=DEEP),
        "stack overflow",
        CERTAIN,
        ("of 8.0 MiB", "a recursion through tree.py:9 in walk", "ulimit -s"),
    ),
    Seen(crashed(SIGSEGV, 1, **OVERFLOW), "stack overflow", CERTAIN, ("libfast.so+0x1110",)),
    Seen(crashed(SIGSEGV, 1, **OVERFLOW, mappings=()), "stack overflow", LIKELY),
    Seen(exited(0xC00000FD), "stack overflow", CERTAIN),
    Seen(
        crashed(SIGSEGV, 2, 0x7F4000000FF8, stack_pointer=0x7F4000001000, stack_limit_bytes=STACK_BYTES),
        "stack overflow",
        LIKELY,
    ),
    # illegal instruction
    Seen(
        crashed(SIGILL, 2, 0x7F0000001110, place=AVX512, cpu="AMD EPYC 7B13"),
        "illegal instruction",
        CERTAIN,
        (
            "needs avx512f; this CPU (AMD EPYC 7B13) has no avx512f",
            "ILL_ILLOPN",
            "-march=x86-64-v3",
            "--no-binary fast",
        ),
    ),
    Seen(
        crashed(SIGILL, 2, 0x7F0000001110, place=dataclasses.replace(AVX512, lacks=())),
        "illegal instruction",
        LIKELY,
        ("damaged", "--force-reinstall"),
    ),
    Seen(
        crashed(SIGILL, 2, place=dataclasses.replace(AVX512, needs=("fma",), lacks=("fma",), library="/opt/x.so")),
        "illegal instruction",
        CERTAIN,
        ("-march=x86-64-v2",),
    ),
    Seen(
        crashed(SIGILL, 2, place=AVX512, cpu="Intel Xeon", cpu_level="x86-64-v2", package="opencv-python"),
        "illegal instruction",
        CERTAIN,
        ("this CPU (Intel Xeon, x86-64-v2)", "CFLAGS='-march=x86-64-v2'", "--no-binary opencv-python opencv-python"),
    ),
    Seen(died(SIGILL), "illegal instruction", LIKELY, ("was not seen",)),
    # compiler trap
    Seen(
        crashed(SIGILL, 2, place=dataclasses.replace(IN_LIBRARY, instruction="ud2", is_trap=True)),
        "compiler trap",
        CERTAIN,
        ("ud2 is no missing CPU feature", "libfast.so"),
    ),
    # wrong-architecture library
    Seen(
        raised(
            "builtins.OSError",
            "/opt/libfast.so: cannot open shared object file: No such file or directory",
            wrong_machine="libfast.so is built for aarch64, and this Python for x86_64",
        ),
        "wrong-architecture library",
        CERTAIN,
        ("built for aarch64",),
    ),
    Seen(
        raised("builtins.ImportError", "/opt/libfast.so: wrong ELF class: ELFCLASS32"),
        "wrong-architecture library",
        LIKELY,
        ("ELFCLASS32",),
    ),
    Seen(
        raised("builtins.OSError", "[Errno 8] Exec format error: './decode.sh'", errno=8, filename="./decode.sh"),
        "dataset exception",
        CERTAIN,
    ),
    Seen(
        raised("builtins.OSError", "[WinError 193] %1 is not a valid Win32 application"), "dataset exception", CERTAIN
    ),
    Seen(
        raised("builtins.ImportError", "DLL load failed: %1 is not a valid Win32 application"),
        "wrong-architecture library",
        LIKELY,
    ),
    Seen(  # a data file that happens to be a library of another machine, on a disk that fails
        raised(
            "builtins.OSError",
            "[Errno 5] Input/output error: '/data/libfast.so'",
            errno=errno.EIO,
            wrong_machine="libfast.so is built for aarch64, and this Python for x86_64",
        ),
        "dataset exception",
        CERTAIN,
    ),
    # abort
    Seen(
        crashed(SIGABRT, -6, None, sender_pid=PID, stderr_tail="epoch 1\nfree(): double free detected in tcache 2\n"),
        "abort",
        LIKELY,
        ("glibc says: free(): double free detected in tcache 2",),
    ),
    Seen(
        died(
            SIGABRT,
            stderr_tail="terminate called after throwing an instance of 'std::runtime_error'\n"
            "  what():  bad JPEG marker\n",
        ),
        "abort",
        LIKELY,
        ("'std::runtime_error' what(): bad JPEG marker",),
    ),
    Seen(
        died(SIGABRT, stderr_tail="python: fast.c:31: decode: Assertion `size > 0' failed.\n"),
        "abort",
        LIKELY,
        ("Assertion `size > 0' failed.",),
    ),
    Seen(died(SIGABRT, stderr_tail="malloc(): corrupted top size\n"), "abort", LIKELY, ("malloc(): corrupted top",)),
    Seen(died(SIGABRT, stderr_tail="corrupted double-linked list\n"), "abort", LIKELY, ("corrupted double-linked",)),
    Seen(
        died(SIGABRT, stderr_tail="*** stack smashing detected ***: terminated\n"),
        "abort",
        LIKELY,
        ("stack smashing",),
    ),
    Seen(
        died(SIGABRT, stderr_tail="thread '<unnamed>' panicked at src/lib.rs:3:5:\nindex out of bounds\nnote: run\n"),
        "abort",
        LIKELY,
        ("Rust says: thread '<unnamed>' panicked at src/lib.rs:3:5: index out of bounds",),
    ),
    Seen(died(SIGABRT, stderr_tail="loading\n"), "abort", LIKELY, ("last on its stderr: loading",)),
    Seen(
        died(SIGABRT, stderr_tail="thread 'main' panicked at src/lib.rs:3:5:\nsurvived\nnote: x\nsample 9 is done\n"),
        "abort",
        LIKELY,
        ("no words to stderr that say why", "last on its stderr: sample 9 is done"),
    ),
    Seen(died(SIGABRT, stderr_tail="F0101 x.cc:1] Check failed: a == b\nfell back\n"), "abort", LIKELY),
    Seen(
        died(
            SIGABRT, stderr_tail="F0101 x.cc:1] Check failed: a == b\n*** Check failure stack trace: ***\n    @ 0x7f\n"
        ),
        "abort",
        LIKELY,
        ("a check says: F0101 x.cc:1] Check failed: a == b",),
    ),
    Seen(died(SIGABRT, stderr_tail="free(): invalid pointer\nanother thread goes on for a moment\n"), "abort", LIKELY),
    # floating point exception
    Seen(crashed(SIGFPE, 1), "floating point exception", CERTAIN, ("divided by zero", "FPE_INTDIV")),
    Seen(died(SIGFPE), "floating point exception", LIKELY),
]
