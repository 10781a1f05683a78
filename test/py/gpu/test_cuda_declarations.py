"""What the runtime declares of the CUDA driver is what NVIDIA's header says, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mock_cuda_driver import HEADERS


def cuda_include() -> Path | None:
    """Where NVIDIA's cuda.h is, in a CUDA that is installed or in a package of headers."""
    found = [Path(path) for path in ("/usr/local/cuda/include", "/usr/include")]
    found += sorted(Path("/usr/local").glob("cuda-*/include"))
    found += [Path(entry) / "nvidia/cuda_runtime/include" for entry in sys.path]
    return next((path for path in found if (path / "cuda.h").exists()), None)


@pytest.mark.skipif(cuda_include() is None, reason="no cuda.h of NVIDIA's is installed to compare with")
def test_declarations_are_nvidias(tmp_path):
    """Structs and numbers of cuda_driver.h against the real header."""
    same_values = {
        "kOutOfMemory": "CUDA_ERROR_OUT_OF_MEMORY", "kDeinitialized": "CUDA_ERROR_DEINITIALIZED",
        "kInvalidImage": "CUDA_ERROR_INVALID_IMAGE", "kNoBinaryForGpu": "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "kUnsupportedPtx": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "kNotFound": "CUDA_ERROR_NOT_FOUND",
        "kIllegalAddress": "CUDA_ERROR_ILLEGAL_ADDRESS", "kLaunchFailed": "CUDA_ERROR_LAUNCH_FAILED",
        "kLaunchTimeout": "CUDA_ERROR_LAUNCH_TIMEOUT", "kContextDestroyed": "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "kAssert": "CUDA_ERROR_ASSERT", "kHardwareStackError": "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "kMultiprocessors": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
        "kCapabilityMajor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
        "kCapabilityMinor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        "kCooperativeLaunch": "CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH",
        "kSharedBytesOptIn": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        "kMemoryPools": "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED",
        "kClusterLaunch": "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH",
        "kStaticSharedBytes": "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES",
        "kLocalBytes": "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES", "kRegisters": "CU_FUNC_ATTRIBUTE_NUM_REGS",
        "kDynamicSharedBytes": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        "kNonPortableClusters": "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
        "kErrorLog": "CU_JIT_ERROR_LOG_BUFFER", "kErrorLogBytes": "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
        "kNonBlocking": "CU_STREAM_NON_BLOCKING", "kNoTiming": "CU_EVENT_DISABLE_TIMING",
        "kPortable": "CU_MEMHOSTALLOC_PORTABLE", "kDeviceMap": "CU_MEMHOSTALLOC_DEVICEMAP",
        "kThreadLocal": "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL",
        "kNotCapturing": "CU_STREAM_CAPTURE_STATUS_NONE",
        "kCooperative": "CU_LAUNCH_ATTRIBUTE_COOPERATIVE",
        "kClusterDimension": "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION",
        "kProgrammaticSerialization": "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION",
        "kU8": "CU_TENSOR_MAP_DATA_TYPE_UINT8", "kF16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
        "kF32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32", "kBf16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
        "kTf32": "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32", "kL2_256B": "CU_TENSOR_MAP_L2_PROMOTION_L2_256B",
    }  # fmt: skip
    lines = [f"static_assert(int(t::{ours}) == int({theirs}));" for ours, theirs in same_values.items()]
    same_places = {
        ("LaunchConfig", "CUlaunchConfig"): {
            "grid": "gridDimX", "block": "blockDimX", "shared_bytes": "sharedMemBytes", "stream": "hStream",
            "attributes": "attrs", "attribute_count": "numAttrs",
        },
        ("LaunchAttribute", "CUlaunchAttribute"): {"id": "id", "value": "value"},
        ("LaunchValue", "CUlaunchAttributeValue"): {
            "cooperative": "cooperative", "cluster": "clusterDim",
            "programmatic_serialization": "programmaticStreamSerializationAllowed",
        },
        ("NodeParams", "CUDA_KERNEL_NODE_PARAMS_v2"): {
            "function": "func", "grid": "gridDimX", "block": "blockDimX", "shared_bytes": "sharedMemBytes",
            "params": "kernelParams", "extra": "extra", "kernel": "kern", "context": "ctx",
        },
        ("TensorMap", "CUtensorMap"): {"opaque": "opaque"},
    }  # fmt: skip
    for (ours, theirs), fields in same_places.items():
        lines.append(
            f"static_assert(sizeof(t::{ours}) == sizeof({theirs}) && alignof(t::{ours}) == alignof({theirs}));"
        )
        lines += [
            f"static_assert(offsetof(t::{ours}, {a}) == offsetof({theirs}, {b}));" for a, b in fields.items()
        ]
    # Arguments pairwise: as many, and each as large, so that every call puts each where the driver looks for it.
    template = """
#include <cstddef>
#include <tuple>
#include <cuda.h>
#include <cudaTypedefs.h>
#include "cuda_driver.h"
namespace t = tw::cuda;
template <class A, class B> struct same { static constexpr bool value = false; };
template <class R, class... A, class Q, class... B> struct same<R (*)(A...), Q (*)(B...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    else return (... && (sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>));
  }
  static constexpr bool value = check();
};
static_assert(same<decltype(t::Driver::launch), decltype(&cuLaunchKernelEx)>::value);
static_assert(same<decltype(t::Driver::encode_tiled), decltype(&cuTensorMapEncodeTiled)>::value);
static_assert(same<decltype(t::Driver::capture_info), PFN_cuStreamGetCaptureInfo_v11030>::value);
static_assert(same<decltype(t::Driver::module_load), decltype(&cuModuleLoadDataEx)>::value);
static_assert(same<decltype(t::Driver::begin_capture), decltype(&cuStreamBeginCapture)>::value);
static_assert(same<decltype(t::Driver::end_capture), decltype(&cuStreamEndCapture)>::value);
static_assert(same<decltype(t::Driver::graph_set_node), decltype(&cuGraphExecKernelNodeSetParams)>::value);
static_assert(same<decltype(t::Driver::graph_instantiate), PFN_cuGraphInstantiateWithFlags_v11040>::value);
static_assert(same<decltype(t::Driver::memory_allocate), decltype(&cuMemAlloc)>::value);
static_assert(same<decltype(t::Driver::memory_allocate_async), decltype(&cuMemAllocAsync)>::value);
static_assert(same<decltype(t::Driver::host_allocate), decltype(&cuMemHostAlloc)>::value);
static_assert(same<decltype(t::Driver::host_device_address), decltype(&cuMemHostGetDevicePointer)>::value);
static_assert(same<decltype(t::Driver::copy_to_device), decltype(&cuMemcpyHtoDAsync)>::value);
static_assert(same<decltype(t::Driver::copy_to_host), decltype(&cuMemcpyDtoHAsync)>::value);
static_assert(same<decltype(t::Driver::fill), decltype(&cuMemsetD8Async)>::value);
static_assert(same<decltype(t::Driver::stream_wait), decltype(&cuStreamWaitEvent)>::value);
static_assert(same<decltype(t::Driver::event_elapsed), decltype(&cuEventElapsedTime)>::value);
static_assert(same<decltype(t::Driver::function_set), decltype(&cuFuncSetAttribute)>::value);
static_assert(same<decltype(t::Driver::device_memory), decltype(&cuDeviceTotalMem)>::value);
static_assert(same<decltype(t::Driver::blocks_per_core),
                   decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor)>::value);
"""
    source = tmp_path / "same.cpp"
    source.write_text(template + "\n".join(lines))
    compiler = shutil.which("g++") or "c++"
    flags = ["-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{cuda_include()}", f"-I{HEADERS}"]
    done = subprocess.run(
        [compiler, *flags, str(source)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
