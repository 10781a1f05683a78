// RUN: tilewright-opt %s --pass-pipeline='builtin.module(gpu.module(lower-primitives{arch=sm_90}))' --split-input-file --verify-diagnostics

gpu.module @kernels {
  gpu.func @arch() kernel {
    // expected-error @below {{`lower-primitives`: `tilewright.set_max_registers` needs sm_90a, the target is sm_90; use another kernel family there}}
    "tilewright.set_max_registers"() {count = 40 : i64, increase = false} : () -> ()
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @contiguous(%g: memref<64xi32, strided<[2]>>) kernel {
    %i = gpu.thread_id x
    // expected-error @below {{`lower-primitives`: operand `source` must be contiguous with one dimension and a static offset, found memref<64xi32, strided<[2]>>}}
    %v = "tilewright.load_acquire"(%g, %i) : (memref<64xi32, strided<[2]>>, index) -> i32
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @unconverted(%g: memref<64xi32>, %i: index) kernel {
    // expected-error @below {{`lower-primitives`: operand of type memref<64xi32> is not in the LLVM dialect yet; run `convert-gpu-to-nvvm` first}}
    %v = "tilewright.load_acquire"(%g, %i) : (memref<64xi32>, index) -> i32
    gpu.return
  }
}
