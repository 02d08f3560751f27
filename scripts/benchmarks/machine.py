"""The machine that is measured on: its device, versions, ceilings, and what others do to it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import triptych

PACKAGES = ("torch", "einops", "transformers", "x-transformers", "triton", "numpy")
ENVIRONMENT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "THP_MEM_ALLOC_ENABLE")
"""Variables of torch and OpenMP that change timings, recorded with them."""
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")


def missing(module: str) -> str | None:
    """Why a row that needs this module is skipped; None where it is installed."""
    if find_spec(module) is not None:
        return None
    return f"{module} is not installed (pip install -e '.[bench]')"


def describe(device: torch.device) -> dict[str, Any]:
    """Device, processor and versions: what two results must share to stand in one table."""
    info = {
        "device": device_name(device),
        "processor": processor(),
        "flags": flags(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "environment": {name: os.environ.get(name, "") for name in ENVIRONMENT},
        "versions": {"triptych": triptych.__version__, **versions()},
    }
    if device.type == "cuda":
        info["cuda"] = torch.version.cuda
        info["gpu_memory_gib"] = torch.cuda.get_device_properties(device).total_memory / 2**30
    return info


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def processor() -> str:
    for key, value in _cpuinfo():
        if key == "model name":
            return value
    return platform.processor() or "unknown"


def flags() -> list[str]:
    """Those instruction sets of the processor that decide how fast products are."""
    for key, value in _cpuinfo():
        if key == "flags":
            return [flag for flag in FLAGS if flag in value.split()]
    return []


def commit() -> str:
    """The checkout's commit, "-dirty" behind it where tracked files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        return subprocess.run(
            [*git, "describe", "--always", "--dirty", "--exclude", "*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _cpuinfo() -> list[tuple[str, str]]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return []
    return [
        (key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)
    ]


def free_bytes(device: torch.device) -> float:
    """Memory that a case may still take: on the GPU, or what Linux calls available."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    fields = {key: value for key, _, value in (line.partition(":") for line in lines)}
    return float(fields["MemAvailable"].split()[0]) * 1024


def cpu_seconds() -> tuple[float, float] | None:
    """CPU seconds of all processes (stolen time included) and of this one; None off Linux."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:
        return None
    busy = sum(ticks) - ticks[3] - ticks[4]  # without idle and waiting for disks
    own = resource.getrusage(resource.RUSAGE_SELF)
    return busy / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime
