"""One instruction of a library: its text, the CPU features it needs, and whether a compiler put it there as a trap.

Decoded by iced-x86, which is installed on x86-64 only: of the decoders tried, the one that names the features of all
instructions rightly. A trap is recognised without it.

Runs in: main process.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from holdfast.diagnosis.native.cpu import cpu_flags, cpu_level, cpu_name

__all__ = ["Instruction", "code_at", "cpu_flags", "cpu_level", "cpu_name", "decode", "is_trap"]

_LONGEST_BYTES = 15
_TRAPS = (b"\x0f\x0b", b"\x0f\xb9", b"\x0f\xff", b"\xcc")  # ud2, ud1, ud0, int3
_ADDRESS_SIZE_PREFIX = b"\x67"  # clang's sanitizers write their reason into a ud1 that has it

_SAME_WORD = """
    ADX AES AVX AVX2 AVX512BW AVX512CD AVX512DQ AVX512ER AVX512F AVX512PF AVX512VL AVX512_4FMAPS AVX512_4VNNIW
    AVX512_BF16 AVX512_BITALG AVX512_FP16 AVX512_VBMI2 AVX512_VNNI AVX512_VP2INTERSECT AVX512_VPOPCNTDQ AVX_IFMA
    AVX_NE_CONVERT AVX_VNNI AVX_VNNI_INT8 AVX_VNNI_INT16 AMX_BF16 AMX_COMPLEX AMX_FP16 AMX_INT8 AMX_TILE BMI1 BMI2
    CLDEMOTE CLFLUSHOPT CLWB CLZERO CMOV CMPCCXADD CX8 ENQCMD F16C FMA FMA4 FPU FSGSBASE FXSR GFNI HLE INVPCID LWP MMX
    MONITOR MOVBE MOVDIR64B MOVDIRI MPX PCLMULQDQ PKU POPCNT RDPID RDPRU RDRAND RDSEED RDTSCP RTM SERIALIZE SHA512 SM3
    SM4 SSE SSE2 SSE4A SSE4_1 SSE4_2 SSSE3 TBM TSXLDTRK VAES VPCLMULQDQ WAITPKG WBNOINVD XOP XSAVE XSAVEC XSAVEOPT
    XSAVES
"""
_WORDS = {name: name.lower() for name in _SAME_WORD.split()} | {
    "AVX512_IFMA": "avx512ifma",
    "AVX512_VBMI": "avx512vbmi",
    "CLFSH": "clflush",
    "CMPXCHG16B": "cx16",
    "D3NOW": "3dnow",
    "D3NOWEXT": "3dnowext",
    "FPU387": "fpu",
    "LZCNT": "abm",
    "MONITORX": "mwaitx",
    "PREFETCHW": "3dnowprefetch",
    "SHA": "sha_ni",
    "SSE3": "pni",
    "UINTR": "uintr",
}
"""From iced-x86's names. One that is not here is no flag of /proc/cpuinfo, and of no use: any x86_64 has an 80186."""


class Instruction(NamedTuple):
    text: str  # in Intel's syntax: "vmovupd zmm0,[rdi]"; "(bad)" where it is none
    needs: tuple[str, ...]  # CPU features, in the words of /proc/cpuinfo


def code_at(path: str, offset: int) -> bytes:
    """The bytes of a file in which the instruction at `offset` lies; fewer than the longest one has, at its end."""
    with Path(path).open("rb") as file:
        file.seek(offset)
        return file.read(_LONGEST_BYTES)


def is_trap(code: bytes) -> bool:
    """Whether this is an instruction that exists to fail: compilers end with it what must not be reached."""
    return code.removeprefix(_ADDRESS_SIZE_PREFIX).startswith(_TRAPS)


def decode(code: bytes, address: int) -> Instruction:
    """The first instruction of `code`, as it stands at `address`. Raises ImportError without iced-x86."""
    from iced_x86 import Decoder, Formatter, FormatterSyntax

    instruction = Decoder(64, code, ip=address).decode()
    if instruction.is_invalid:
        return Instruction("(bad)", ())
    formatter = Formatter(FormatterSyntax.INTEL)
    features = (_feature_names().get(number, "") for number in instruction.cpuid_features())
    return Instruction(formatter.format(instruction), tuple(_WORDS[name] for name in features if name in _WORDS))


@functools.cache
def _feature_names() -> dict[int, str]:
    from iced_x86 import CpuidFeature

    return {number: name for name, number in vars(CpuidFeature).items() if isinstance(number, int)}
