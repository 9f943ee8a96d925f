"""A CUDA driver that does nothing, for Triton on a machine without a GPU: kernels are compiled, loaded and launched in
full, tensors lie in host memory, and each launch leaves a note of what it was given instead of running.

    driver = stub_cuda.activate(folder)   # needs gcc, as Triton does; refuses where there is a GPU
    kernel[grid](x, ...); stub_cuda.notes()
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARAMETERS = 64  # of a launch, of each its first 8 bytes: a pointer, a number, the address in a descriptor
SOURCE = r"""
#include "cuda.h"
#include <string.h>
#define DONE(name, ...) CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }
typedef struct { unsigned long long grid[3], stream, function, parameters[64]; } Note;
#define NOTES 4096
Note stub_notes[NOTES];
unsigned long long stub_launches = 0;
int stub_parameters = 0; /* how many to look at: a launch does not say how many it has */

CUresult cuInit(unsigned int flags) { return CUDA_ERROR_NO_DEVICE; } /* for torch there is none */
static __thread CUcontext current = 0; /* of device n: n + 1 */
CUresult cuCtxGetCurrent(CUcontext *c) { *c = current; return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *d) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  *d = (CUdevice)(unsigned long long)current - 1;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t *n, CUlimit which) { *n = 1; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { current = c; return CUDA_SUCCESS; }
DONE(cuCtxSetLimit, CUlimit which, size_t n)
CUresult cuDeviceGet(CUdevice *d, int n) { *d = n; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *n, CUdevice_attribute which, CUdevice d) { *n = 232448; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
  *c = (CUcontext)(unsigned long long)(d + 1);
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *n) { *n = 13000; return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *n, CUfunction_attribute which, CUfunction f) { *n = 1024; return CUDA_SUCCESS; }
DONE(cuFuncSetAttribute, CUfunction f, CUfunction_attribute which, int n)
DONE(cuFuncSetCacheConfig, CUfunction f, CUfunc_cache which)
CUresult cuGetErrorString(CUresult code, const char **text) { *text = "an error of the stub"; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  static unsigned long long n = 0x1000;
  *f = (CUfunction)(n += 16);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *m, const void *data) { *m = (CUmodule)1; return CUDA_SUCCESS; }
DONE(cuModuleUnload, CUmodule m)
CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction f, const CUlaunchConfig *c) { *n = 1; return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *to, CUpointer_attribute which, CUdeviceptr p) {
  *(CUdeviceptr *)to = p;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *which, void **to, CUdeviceptr p) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *to) { *to = 0; return CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *shape, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave i, CUtensorMapSwizzle s,
                                CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  memset(map, 0, sizeof(*map));
  memcpy(map, &address, 8);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
  Note *note = &stub_notes[stub_launches++ % NOTES];
  note->grid[0] = c->gridDimX, note->grid[1] = c->gridDimY, note->grid[2] = c->gridDimZ;
  note->stream = (unsigned long long)c->hStream, note->function = (unsigned long long)f;
  for (int i = 0; i < stub_parameters && i < 64; i++)
    memcpy(&note->parameters[i], parameters[i], 8);
  return CUDA_SUCCESS;
}
"""


class _Note(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint64 * 3),
        ("stream", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("parameters", ctypes.c_uint64 * PARAMETERS),
    ]


@dataclass(frozen=True)
class Launched:
    """parameters: the first 8 bytes of each, so a narrower number stands in the low ones beside what lay there."""

    grid: tuple[int, ...]
    stream: int
    function: int
    parameters: tuple[int, ...]


_library: Any = None


def activate(folder: Path) -> Any:
    """Makes it Triton's driver, built in the folder; its `stream` and `device` are the current ones. Returns it.

    Raises RuntimeError where there is a GPU, FileNotFoundError without gcc.
    """
    global _library
    import torch

    if torch.cuda.is_available():
        raise RuntimeError("there is a GPU here, which the stub would stand in front of")
    import triton
    from triton.backends.nvidia import driver as nvidia
    from triton.runtime import driver

    if _library is None:
        include = Path(nvidia.__file__).parent / "include"
        (folder / "stub_cuda.c").write_text(SOURCE)
        place = folder / "libcuda.so.1"
        flags = ["-O1", "-shared", "-fPIC", "-w", f"-I{include}", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["gcc", *flags, "-o", str(place), str(folder / "stub_cuda.c")], check=True)
        _library = ctypes.CDLL(str(place), mode=ctypes.RTLD_GLOBAL)
        os.environ["TRITON_LIBCUDA_PATH"] = str(folder)

    class Stub(nvidia.CudaDriver):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.utils, self.launcher_cls = nvidia.CudaUtils(), nvidia.CudaLauncher
            self.device, self.stream = 0, 7
            self.get_device_capability = lambda device: (9, 0)

        def get_current_device(self) -> int:
            return self.device

        def set_current_device(self, device: int) -> None:
            self.device = device

        def get_current_stream(self, device: int) -> int:
            return self.stream

    made = Stub()
    driver.set_active(made)
    assert triton.runtime.driver.active is made
    return made


def look(parameters: int) -> None:
    """So many parameters of each launch are noted from now on: no more than the kernel has."""
    ctypes.c_int.in_dll(_library, "stub_parameters").value = parameters


def count() -> int:
    return int(ctypes.c_uint64.in_dll(_library, "stub_launches").value)


def notes(since: int) -> list[Launched]:
    """The launches from number `since` on, at most the last 4096."""
    looked = ctypes.c_int.in_dll(_library, "stub_parameters").value
    every = (_Note * 4096).in_dll(_library, "stub_notes")
    found = []
    for number in range(since, count()):
        n = every[number % 4096]
        found.append(Launched(tuple(n.grid), n.stream, n.function, tuple(n.parameters[:looked])))
    return found
