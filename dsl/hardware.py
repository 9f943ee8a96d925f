"""What is known about each chip: peaks, bandwidths, limits, and where each number was published.

All figures are dense (no structured sparsity), at the boost clock that the vendor's own peak implies, for the form
factor that `sources["form"]` names. They bound what a kernel can reach; what a card sustains under its power limit is
less. A figure that no vendor publishes says so in its source and how it was derived.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

KIB, MIB, GB, TERA = 1024, 1024**2, 10**9, 1e12


@dataclass(frozen=True)
class Hardware:
    """One chip. Rates are per second for the whole chip; `_sm` fields are per SM (NVIDIA) or compute unit (AMD).

    peak_flops: dtype -> FLOP/s of the matrix units with f32 (integers: i32) sums, a multiply-add counting two.
    alu_flops: f32 FLOP/s outside the matrix units. exp_per_s: results/s of the special-function units (exp2, log2..).
    dtypes: operand dtypes that the matrix units take. emulated: dtypes that compile, but run as a wider one.
    shared_bytes: most shared memory (LDS) that one block can have. registers_sm: 32-bit registers, all banks.
    dies: chiplets with an L2 of their own that the hardware deals blocks to in turn; 1 where software sees one L2.
    launch_s: least time that one more kernel adds to a stream. memory_cache_bytes: of a cache behind the L2, which a
    second read of the same bytes comes from (AMD's Infinity Cache); 0 where there is none. Vendor "cpu" makes no speed
    claim: its rates are 0.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    vendor: str  # "nvidia", "amd" or "cpu"
    arch: str  # "sm_100", "gfx942", "cpu"
    triton_arch: int | str | None  # what triton's GPUTarget takes; None: nothing to compile for
    warp_size: int
    sms: int
    clock_hz: float
    peak_flops: Mapping[str, float]
    alu_flops: float
    exp_per_s: float
    hbm_bytes_per_s: float
    hbm_bytes: int
    l2_bytes: int
    l2_bytes_per_s: float
    shared_bytes: int
    shared_bytes_sm: int
    registers_sm: int
    registers_thread: int
    max_threads_sm: int
    max_blocks_sm: int
    dies: int
    dtypes: frozenset[str]
    launch_s: float
    memory_cache_bytes: int = 0
    emulated: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.name, self.arch))

    @property
    def claims_speed(self) -> bool:
        """False for the host: it judges correctness alone."""
        return self.vendor != "cpu"

    @property
    def has_tma(self) -> bool:
        """Tensor-descriptor loads. NVIDIA from sm_90 on; the interpreter has them too."""
        return self.vendor == "cpu" or (isinstance(self.triton_arch, int) and self.triton_arch >= 90)

    def peak(self, dtype: str) -> float:
        """FLOP/s of a contraction of operands of this dtype: native, else as it is emulated; f32 on the ALUs."""
        if dtype in self.peak_flops:
            return self.peak_flops[dtype]
        return self.peak_flops["f16"] if dtype in self.emulated else self.alu_flops


class UnknownHardware(LookupError):
    """A person named a chip that is not known. The message lists the known ones, nearest first."""


_AMPERE = frozenset({"f16", "bf16", "int8"})
_HOPPER = _AMPERE | {"e4m3", "e5m2"}
_BLACKWELL = _HOPPER | {"mxfp8", "mxfp4", "nvfp4"}

_CUDA_LIMITS = "CUDA C++ Programming Guide 13, table 'Technical Specifications per Compute Capability'"
_CUDA_RATES = (
    "CUDA C++ Programming Guide 13, table 'Throughput of Native Arithmetic Instructions': 16 results per clock and SM "
    "for reciprocal, exp2, log2, sine; times SMs and clock"
)
_LAUNCH = (
    "NVIDIA technical blog 'Getting Started with CUDA Graphs' (2019): 3.8 us per 2.9 us kernel when launches overlap "
    "execution, on a V100; newer chips publish no figure"
)
_MATRIX = "which dtypes the matrix instructions of Triton's output take, by cross-compilation with Triton 3.8"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, table 'H100 SXM5' (dense column)"
_B200 = "NVIDIA HGX platform page, HGX B200 column divided by 8 GPUs (dense = half of the sparse figure)"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix A, RTX 4090 column (dense, f32 sums)"
_RTX50 = "NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A, RTX 5090 column (dense, f32 sums)"
_A100 = "NVIDIA A100 Tensor Core GPU Architecture whitepaper and A100 80GB SXM datasheet (dense)"
_MI300X = "AMD Instinct MI300X datasheet (2023), peak theoretical, no sparsity"
_MI355X = "AMD Instinct MI355X datasheet (2025), peak theoretical, no sparsity"
_ROCM = "ROCm documentation, 'AMD GPU specifications', row of this accelerator"
_LLVM = "LLVM AMDGPU usage guide and AMDGPUBaseInfo: 8 waves per SIMD, 4 SIMDs, 16 barriers per compute unit"


def _nvidia_sources(main: str, **more: str) -> Mapping[str, str]:
    named = {f: main for f in ("form", "sms", "clock_hz", "peak_flops", "alu_flops", "hbm_bytes_per_s", "hbm_bytes")}
    limits = ("shared_bytes", "shared_bytes_sm", "registers_sm", "registers_thread", "max_threads_sm", "max_blocks_sm")
    named |= dict.fromkeys((*limits, "warp_size"), _CUDA_LIMITS)
    named["memory_cache_bytes"] = "none: the L2 is the last cache before memory"
    return MappingProxyType(named | {"exp_per_s": _CUDA_RATES, "launch_s": _LAUNCH, "dtypes": _MATRIX, **more})


def _amd_sources(main: str, **more: str) -> Mapping[str, str]:
    named = {f: main for f in ("form", "clock_hz", "peak_flops", "alu_flops", "hbm_bytes_per_s", "hbm_bytes")}
    named |= dict.fromkeys(("sms", "shared_bytes", "shared_bytes_sm", "l2_bytes", "warp_size", "dies"), _ROCM)
    named |= dict.fromkeys(("max_threads_sm", "max_blocks_sm", "registers_thread"), _LLVM)
    named["registers_sm"] = _ROCM + ": 512 KiB of vector registers per compute unit"
    named["memory_cache_bytes"] = _ROCM + ": Infinity Cache"
    named["launch_s"] = "AMD publishes none; taken to be the order of NVIDIA's: " + _LAUNCH
    return MappingProxyType(named | {"dtypes": _MATRIX, **more})


HARDWARE: Mapping[str, Hardware] = MappingProxyType(
    {
        "b200": Hardware(
            name="b200",
            title="NVIDIA B200 (HGX, 1000 W)",
            aliases=("sm_100", "hgx b200", "dgx b200"),
            vendor="nvidia",
            arch="sm_100",
            triton_arch=100,
            warp_size=32,
            sms=148,
            clock_hz=1.85e9,
            peak_flops=MappingProxyType(
                {"f16": 2.25e15, "bf16": 2.25e15, "int8": 4.5e15, "e4m3": 4.5e15, "e5m2": 4.5e15}
                | {"mxfp8": 4.5e15, "mxfp4": 9e15, "nvfp4": 9e15}
            ),
            alu_flops=75e12,
            exp_per_s=148 * 16 * 1.85e9,
            hbm_bytes_per_s=8e12,
            hbm_bytes=180 * GB,
            l2_bytes=126 * MIB,
            l2_bytes_per_s=2 * 5120 * 1.85e9,
            shared_bytes=227 * KIB,
            shared_bytes_sm=228 * KIB,
            registers_sm=65536,
            registers_thread=255,
            max_threads_sm=2048,
            max_blocks_sm=32,
            dies=1,
            dtypes=_BLACKWELL,
            launch_s=0.9e-6,
            sources=_nvidia_sources(
                _B200,
                sms="two dies of 74 enabled SMs: Chips and Cheese, 'Nvidia's B200' (2025)",
                clock_hz="implied by 2.25 PFLOP/s = 148 SMs x 8,192 FLOP per clock (FlashAttention-4, 2026)",
                exp_per_s="together.ai/blog/flashattention-4: 16 exponentials per clock and SM, as on Hopper",
                l2_bytes="NVIDIA Blackwell Tuning Guide 13.0, section 'Increased L2 Capacity': 126 MB",
                l2_bytes_per_s="no published figure; two dies at the 5,120 bytes per clock of one A100 L2",
                dies="two dies that software sees as one GPU with one L2 (NVIDIA Blackwell architecture brief)",
            ),
        ),
        "h200": Hardware(
            name="h200",
            title="NVIDIA H200 SXM",
            aliases=("h200 sxm", "h200 141gb"),
            vendor="nvidia",
            arch="sm_90",
            triton_arch=90,
            warp_size=32,
            sms=132,
            clock_hz=1.83e9,
            peak_flops=MappingProxyType(
                {"f16": 989.4e12, "bf16": 989.4e12, "int8": 1978.9e12, "e4m3": 1978.9e12, "e5m2": 1978.9e12}
            ),
            alu_flops=66.9e12,
            exp_per_s=132 * 16 * 1.83e9,
            hbm_bytes_per_s=4.8e12,
            hbm_bytes=141 * GB,
            l2_bytes=60 * MIB,
            l2_bytes_per_s=5120 * 1.83e9,
            shared_bytes=227 * KIB,
            shared_bytes_sm=228 * KIB,
            registers_sm=65536,
            registers_thread=255,
            max_threads_sm=2048,
            max_blocks_sm=32,
            dies=1,
            dtypes=_HOPPER,
            emulated=frozenset({"mxfp4", "nvfp4"}),
            launch_s=0.9e-6,
            sources=_nvidia_sources(
                "NVIDIA H200 Tensor Core GPU datasheet (2024), SXM column (dense = half of the sparse figure)",
                sms=_H100,
                clock_hz="implied by 989.4 TFLOP/s = 132 SMs x 4,096 FLOP per clock (H100 whitepaper)",
                l2_bytes="cudaDeviceProp.l2CacheSize as an H200 reports it: 62,914,560",
                l2_bytes_per_s="no published figure; the 5,120 bytes per clock of the A100 whitepaper at this clock",
                dies="one die",
            ),
        ),
        "h100": Hardware(
            name="h100",
            title="NVIDIA H100 SXM5 80 GB",
            aliases=("sm_90", "h100 sxm", "h100 sxm5", "h100 80gb hbm3"),
            vendor="nvidia",
            arch="sm_90",
            triton_arch=90,
            warp_size=32,
            sms=132,
            clock_hz=1.83e9,
            peak_flops=MappingProxyType(
                {"f16": 989.4e12, "bf16": 989.4e12, "int8": 1978.9e12, "e4m3": 1978.9e12, "e5m2": 1978.9e12}
            ),
            alu_flops=66.9e12,
            exp_per_s=132 * 16 * 1.83e9,
            hbm_bytes_per_s=3.35e12,
            hbm_bytes=80 * GB,
            l2_bytes=50 * MIB,
            l2_bytes_per_s=5120 * 1.83e9,
            shared_bytes=227 * KIB,
            shared_bytes_sm=228 * KIB,
            registers_sm=65536,
            registers_thread=255,
            max_threads_sm=2048,
            max_blocks_sm=32,
            dies=1,
            dtypes=_HOPPER,
            emulated=frozenset({"mxfp4", "nvfp4"}),
            launch_s=0.9e-6,
            sources=_nvidia_sources(
                _H100,
                clock_hz="implied by 989.4 TFLOP/s = 132 SMs x 4,096 FLOP per clock (H100 whitepaper)",
                l2_bytes="NVIDIA Hopper Tuning Guide, section 'Increased L2 Capacity': 50 MB",
                l2_bytes_per_s="no published figure; the 5,120 bytes per clock of the A100 whitepaper at this clock",
                dies="one die",
            ),
        ),
        "a100": Hardware(
            name="a100",
            title="NVIDIA A100 SXM4 80 GB",
            aliases=("sm_80", "a100 sxm", "a100 80gb", "a100 sxm4 80gb"),
            vendor="nvidia",
            arch="sm_80",
            triton_arch=80,
            warp_size=32,
            sms=108,
            clock_hz=1.41e9,
            peak_flops=MappingProxyType({"f16": 312e12, "bf16": 312e12, "int8": 624e12}),
            alu_flops=19.5e12,
            exp_per_s=108 * 16 * 1.41e9,
            hbm_bytes_per_s=2.039e12,
            hbm_bytes=80 * GB,
            l2_bytes=40 * MIB,
            l2_bytes_per_s=5120 * 1.41e9,
            shared_bytes=163 * KIB,
            shared_bytes_sm=164 * KIB,
            registers_sm=65536,
            registers_thread=255,
            max_threads_sm=2048,
            max_blocks_sm=32,
            dies=1,
            dtypes=_AMPERE,
            emulated=frozenset({"mxfp4"}),
            launch_s=0.9e-6,
            sources=_nvidia_sources(
                _A100, l2_bytes=_A100, l2_bytes_per_s=_A100 + ": 5,120 bytes per clock", dies="one die"
            ),
        ),
        "rtx4090": Hardware(
            name="rtx4090",
            title="NVIDIA GeForce RTX 4090",
            aliases=("sm_89", "4090", "rtx 4090"),
            vendor="nvidia",
            arch="sm_89",
            triton_arch=89,
            warp_size=32,
            sms=128,
            clock_hz=2.52e9,
            peak_flops=MappingProxyType(
                {"f16": 165.2e12, "bf16": 165.2e12, "int8": 660.6e12, "e4m3": 330.3e12, "e5m2": 330.3e12}
            ),
            alu_flops=82.6e12,
            exp_per_s=128 * 16 * 2.52e9,
            hbm_bytes_per_s=1.008e12,
            hbm_bytes=24 * GB,
            l2_bytes=72 * MIB,
            l2_bytes_per_s=5e12,
            shared_bytes=99 * KIB,
            shared_bytes_sm=100 * KIB,
            registers_sm=65536,
            registers_thread=255,
            max_threads_sm=1536,
            max_blocks_sm=24,
            dies=1,
            dtypes=_HOPPER,
            emulated=frozenset({"mxfp4", "nvfp4"}),
            launch_s=0.9e-6,
            sources=_nvidia_sources(
                _ADA,
                l2_bytes=_ADA,
                l2_bytes_per_s="about 5 TB/s: Chips and Cheese, 'Microbenchmarking Nvidia's RTX 4090' (2022)",
                dies="one die",
            ),
        ),
        "rtx5090": Hardware(
            name="rtx5090",
            title="NVIDIA GeForce RTX 5090",
            aliases=("sm_120", "5090", "rtx 5090"),
            vendor="nvidia",
            arch="sm_120",
            triton_arch=120,
            warp_size=32,
            sms=170,
            clock_hz=2.407e9,
            peak_flops=MappingProxyType(
                {"f16": 209.5e12, "bf16": 209.5e12, "int8": 838e12, "e4m3": 419e12, "e5m2": 419e12}
                | {"mxfp8": 419e12, "mxfp4": 1676e12, "nvfp4": 1676e12}
            ),
            alu_flops=104.8e12,
            exp_per_s=170 * 16 * 2.407e9,
            hbm_bytes_per_s=1.792e12,
            hbm_bytes=32 * GB,
            l2_bytes=96 * MIB,
            l2_bytes_per_s=5e12 * (2.407 / 2.52) * (96 / 72),
            shared_bytes=99 * KIB,
            shared_bytes_sm=100 * KIB,
            registers_sm=65536,
            registers_thread=255,
            max_threads_sm=1536,
            max_blocks_sm=24,
            dies=1,
            dtypes=_BLACKWELL,
            launch_s=0.9e-6,
            sources=_nvidia_sources(
                _RTX50,
                l2_bytes=_RTX50,
                l2_bytes_per_s="no published figure; the RTX 4090's, scaled by clock and by L2 slices",
                dies="one die",
            ),
        ),
        "mi300x": Hardware(
            name="mi300x",
            title="AMD Instinct MI300X",
            aliases=("gfx942", "mi300", "instinct mi300x"),
            vendor="amd",
            arch="gfx942",
            triton_arch="gfx942",
            warp_size=64,
            sms=304,
            clock_hz=2.1e9,
            peak_flops=MappingProxyType({"f16": 1307.4e12, "bf16": 1307.4e12, "int8": 2614.9e12, "f32": 163.4e12}),
            alu_flops=163.4e12,
            exp_per_s=304 * 16 * 2.1e9,
            hbm_bytes_per_s=5.3e12,
            hbm_bytes=192 * GB,
            l2_bytes=32 * MIB,
            l2_bytes_per_s=8 * 2048 * 2.1e9,
            shared_bytes=64 * KIB,
            shared_bytes_sm=64 * KIB,
            registers_sm=131072,
            registers_thread=512,
            max_threads_sm=2048,
            max_blocks_sm=16,
            dies=8,
            dtypes=_AMPERE,
            emulated=frozenset({"e4m3", "e5m2", "mxfp4"}),  # its own fp8 is the fnuz format, another dtype
            launch_s=0.9e-6,
            memory_cache_bytes=256 * MIB,
            sources=_amd_sources(
                _MI300X,
                exp_per_s="AMD CDNA 3 ISA guide: transcendentals at a quarter of 64 lanes per clock and CU",
                l2_bytes_per_s="AMD CDNA 3 white paper: 2 KB per clock and XCD, 8 XCDs",
            ),
        ),
        "mi355x": Hardware(
            name="mi355x",
            title="AMD Instinct MI355X",
            aliases=("gfx950", "mi355", "instinct mi355x"),
            vendor="amd",
            arch="gfx950",
            triton_arch="gfx950",
            warp_size=64,
            sms=256,
            clock_hz=2.4e9,
            peak_flops=MappingProxyType(
                {"f16": 2516.6e12, "bf16": 2516.6e12, "int8": 5033e12, "e4m3": 5033e12, "e5m2": 5033e12}
                | {"mxfp8": 5033e12, "mxfp4": 10066e12, "f32": 157.3e12}
            ),
            alu_flops=157.3e12,
            exp_per_s=256 * 32 * 2.4e9,
            hbm_bytes_per_s=8e12,
            hbm_bytes=288 * GB,
            l2_bytes=32 * MIB,
            l2_bytes_per_s=8 * 2048 * 2.4e9,
            shared_bytes=160 * KIB,
            shared_bytes_sm=160 * KIB,
            registers_sm=131072,
            registers_thread=512,
            max_threads_sm=2048,
            max_blocks_sm=16,
            dies=8,
            dtypes=_HOPPER | {"mxfp8", "mxfp4"},
            launch_s=0.9e-6,
            memory_cache_bytes=256 * MIB,
            sources=_amd_sources(
                _MI355X,
                exp_per_s="AMD CDNA 4 white paper: transcendental rate doubled over CDNA 3, so 32 per clock",
                l2_bytes_per_s="AMD CDNA 3 white paper: 2 KB per clock and XCD, 8 XCDs; CDNA 4 keeps the XCD's L2",
            ),
        ),
        "cpu": Hardware(
            name="cpu",
            title="this computer's CPU (Triton's interpreter; judges correctness, claims no speed)",
            aliases=("host", "interpreter"),
            vendor="cpu",
            arch="cpu",
            triton_arch=None,
            warp_size=32,
            sms=1,
            clock_hz=0.0,
            peak_flops=MappingProxyType({}),
            alu_flops=0.0,
            exp_per_s=0.0,
            hbm_bytes_per_s=0.0,
            hbm_bytes=0,
            l2_bytes=0,
            l2_bytes_per_s=0.0,
            shared_bytes=2**40,  # the interpreter keeps tiles in ordinary memory: no limit of its own
            shared_bytes_sm=2**40,
            registers_sm=2**30,
            registers_thread=2**30,
            max_threads_sm=2**20,
            max_blocks_sm=1,
            dies=1,
            dtypes=_HOPPER | {"mxfp4", "nvfp4"},
            launch_s=0.0,
            sources=MappingProxyType({"form": "no speed claim is made for the host, so no figure is needed"}),
        ),
    }
)

_PREFIXES = re.compile(r"^(nvidia|amd|geforce|instinct|hgx|dgx)+")


def _plain(name: str) -> str:
    """`NVIDIA H200`, `h-200` and `H200` are one name."""
    return _PREFIXES.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))


def hardware(name: str, extra: Iterable[Hardware] = ()) -> Hardware:
    """The chip of this name or alias, whatever its case, spaces and vendor prefix. `extra`: chips of plug-ins.

    Raises UnknownHardware, listing the known chips with the nearest first, and ValueError where a plug-in's chip bears
    the name of another.
    """
    chips = dict(HARDWARE)
    for chip in extra:
        if chip.name in chips:
            raise ValueError(f"two chips are called {chip.name!r}: {chips[chip.name].title} and {chip.title}")
        chips[chip.name] = chip
    wanted = _plain(name)
    spellings = {_plain(a): c for c in chips.values() for a in c.aliases}
    spellings |= {_plain(c.name): c for c in chips.values()}  # a name wins over another chip's alias
    if wanted in spellings:
        return spellings[wanted]

    def likeness(chip: Hardware) -> float:
        by_name = difflib.SequenceMatcher(None, wanted, chip.name).ratio()
        return max([by_name, *(0.9 * difflib.SequenceMatcher(None, wanted, _plain(a)).ratio() for a in chip.aliases)])

    known = sorted(chips.values(), key=likeness, reverse=True)
    raise UnknownHardware(f"unknown chip {name!r}; known, nearest first: {', '.join(c.name for c in known)}")
