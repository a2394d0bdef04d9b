"""torch: whether it can be imported, whether its companions fit it, and whether the driver is new enough for its CUDA.

Runs in: main process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

from holdfast.doctor import nvidia
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import TorchProbe

NAME = "torch"
LIMIT_S = 75.0
_LEAST = (2, 6)
_COMPANIONS = ("torchvision", "torchaudio", "torchtext", "xformers", "torch-tensorrt")
_EXACTLY = re.compile(r"^torch\s*\(?\s*==\s*([0-9.]+)")
_LEAST_DRIVER = {"11": (450, 80), "12": (525, 60), "13": (580, 65)}
"""Of Linux, by the major version of CUDA: what NVIDIA's compatibility table says."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A package that is built for one version of torch and no other."""

    name: str
    version: str
    wants: str


@dataclass(frozen=True, slots=True)
class Facts:
    torch: TorchProbe
    companions: tuple[Companion, ...] = ()
    driver: str | None = None


def look(scope: Scope) -> Facts:
    return Facts(scope.torch, tuple(_companions()), nvidia.driver_version(scope.root))


def _companions() -> list[Companion]:
    found: list[Companion] = []
    for name in _COMPANIONS:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        wanted = [match[1] for line in package.requires or () if (match := _EXACTLY.match(line))]
        found.extend(Companion(name, package.version, version) for version in wanted)
    return found


def judge(facts: Facts) -> list[Finding]:
    if not facts.torch.works:
        return [_does_not_work(facts.torch)]
    found = [*_too_old(facts), *_misfits(facts), *_driver(facts)]
    built = f"for CUDA {facts.torch.cuda_built}" if facts.torch.cuda_built else "without CUDA"
    driver = f", driver {facts.driver}" if facts.driver else ""
    return found or [
        ok(NAME, f"{facts.torch.installed}, built {built}{driver}; imported in {facts.torch.import_s:.1f} s")
    ]


def _does_not_work(torch: TorchProbe) -> Finding:
    is_there = torch.installed is not None
    return Finding(
        NAME,
        Level.PROBLEM,
        f"torch {torch.installed} cannot be imported" if is_there else "torch is not installed for this Python",
        evidence=(torch.why_not, *(line for line in torch.last_words if line != torch.why_not)),
        consequence="no loader can be made, and every worker would die of the same",
        remedy=(
            'python -X faulthandler -c "import torch"  # the whole message',
            "pip install --force-reinstall --no-cache-dir torch",
        )
        if is_there
        else ("pip install torch",),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _too_old(facts: Facts) -> list[Finding]:
    installed = facts.torch.installed or ""
    if _numbers(installed) >= _LEAST:
        return []
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"torch {installed} is older than holdfast knows",
            evidence=(f"torch {installed} is installed; 2.6 is the oldest",),
            consequence="a loader may fail on names that this torch does not have",
            remedy=("pip install 'torch>=2.6'",),
        )
    ]


def _misfits(facts: Facts) -> list[Finding]:
    installed = (facts.torch.installed or "").partition("+")[0]
    misfits = [one for one in facts.companions if one.wants.rstrip(".") != installed]
    if not misfits:
        return []
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"{', '.join(one.name for one in misfits)}: built for another torch than {installed}",
            evidence=tuple(f"{one.name} {one.version} requires torch=={one.wants}" for one in misfits),
            consequence="undefined symbols on import, operators that do not exist, or a segmentation fault in a worker",
            remedy=(f"pip install --upgrade torch {' '.join(one.name for one in misfits)}  # all in one command",),
        )
    ]


def _driver(facts: Facts) -> list[Finding]:
    built, driver = facts.torch.cuda_built, facts.driver
    if built is None or driver is None or facts.torch.cuda_works:
        return []
    least = _LEAST_DRIVER.get(built.partition(".")[0])
    if least is None or _numbers(driver) >= least:
        return []
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"the NVIDIA driver {driver} is too old for CUDA {built}, which torch was built for",
            evidence=(f"CUDA {built} needs driver {least[0]}.{least[1]} or newer", *facts.torch.said[:2]),
            consequence='device="cuda" and pin_memory=True fail: torch finds no device',
            remedy=(
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu118",
                "sudo apt-get install --only-upgrade 'nvidia-driver-*'  # or a newer driver",
            ),
        )
    ]
