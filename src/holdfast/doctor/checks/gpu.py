"""GPUs: whether those that the machine has reach this process, and whether torch can use them.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.doctor import nvidia
from holdfast.doctor.environment import variables
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import TorchProbe

NAME = "GPU"
LIMIT_S = 75.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Facts:
    torch: TorchProbe
    driver: str | None = None
    nodes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; None: it is not set."""


def look(scope: Scope) -> Facts:
    return Facts(
        scope.torch,
        nvidia.driver_version(scope.root),
        nvidia.device_nodes(scope.root),
        nvidia.models(scope.root),
        variables([_VISIBLE]).get(_VISIBLE),
    )


def judge(facts: Facts) -> list[Finding]:
    if facts.torch.cuda_works:
        return [ok(NAME, f"torch can use {facts.torch.devices}: {', '.join(facts.models) or 'of a kind not shown'}")]
    if facts.driver is None and not facts.nodes:
        return [_no_driver(facts)]
    if facts.visible is not None and facts.visible.strip() in ("", "-1", "NoDevFiles"):
        return [_hidden(facts)]
    if not facts.nodes:
        return [_not_in_container(facts)]
    if not facts.torch.works:
        return [ok(NAME, f"driver {facts.driver}; torch, which would use it, cannot be imported")]
    return [_not_used(facts)]


def _no_driver(facts: Facts) -> Finding:
    if facts.torch.cuda_built is None:
        return ok(NAME, "none, and torch was built without CUDA")
    return Finding(
        NAME,
        Level.NOTE,
        f"torch was built for CUDA {facts.torch.cuda_built}, and there is no NVIDIA driver here",
        evidence=("there is neither /proc/driver/nvidia nor /dev/nvidia0", *facts.torch.said[:1]),
        consequence='device="cuda" fails; pin_memory=True does nothing',
        remedy=("docker run --gpus all ...  # where the machine has a GPU",),
    )


def _hidden(facts: Facts) -> Finding:
    return Finding(
        NAME,
        Level.NOTE,
        "the GPUs of this machine are hidden from this process",
        evidence=(f"{_VISIBLE}={facts.visible!r}",),
        consequence='device="cuda" fails, as it was told to',
        remedy=(f"unset {_VISIBLE}",),
    )


def _not_in_container(facts: Facts) -> Finding:
    return Finding(
        NAME,
        Level.WARNING,
        "the machine has an NVIDIA driver, and no GPU reaches this process",
        evidence=(f"driver {facts.driver}", "there is no /dev/nvidia0"),
        consequence='device="cuda" fails; pin_memory=True does nothing',
        remedy=("docker run --gpus all ...", "nvidia-smi  # what there is, run outside the container"),
    )


def _not_used(facts: Facts) -> Finding:
    built = facts.torch.cuda_built
    why = f"torch was built for CUDA {built}" if built else "torch was built without CUDA"
    return Finding(
        NAME,
        Level.WARNING,
        f"torch cannot use the GPU of this machine: {', '.join(facts.models) or ', '.join(facts.nodes)}",
        evidence=(f"driver {facts.driver}", why, *facts.torch.said[:2]),
        consequence="training runs on the CPU, and workers compete with it",
        remedy=(
            "python -c \"import torch; torch.zeros(1, device='cuda')\"  # says why"
            if built
            else "pip install --force-reinstall torch  # the build for CUDA",
        ),
    )
