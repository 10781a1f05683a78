// RUN: tilewright-opt %s --pass-pipeline='builtin.module(lower-to-emulator)' --split-input-file --verify-diagnostics

// expected-error @below {{`lower-to-emulator`: expected one gpu.func, found 0; lower kernels one by one}}
module {
  gpu.module @kernels {
  }
}

// -----

module {
  gpu.module @kernels {
    // expected-error @below {{`lower-to-emulator`: expected `tilewright.launch`, found none; write how the kernel is launched}}
    gpu.func @bare() kernel {
      gpu.return
    }
  }
}

// -----

module {
  gpu.module @kernels {
    gpu.func @unplaced() kernel attributes {tilewright.launch = {grid = 1 : i64, block = 32 : i64}} {
      // expected-error @below {{`lower-to-emulator`: expected placed shared memory, found an allocation; run place-shared}}
      %s = memref.alloc() : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.return
    }
  }
}

// -----

module {
  gpu.module @kernels {
    gpu.func @unknown(%a: memref<4xf32>, %b: memref<4xf32>) kernel attributes {
        tilewright.launch = {grid = 1 : i64, block = 32 : i64}} {
      // expected-error @below {{`lower-to-emulator`: the emulator does not know `linalg.copy`; write it with what it knows}}
      linalg.copy ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
      gpu.return
    }
  }
}

// -----

module {
  gpu.module @kernels {
    // expected-error @below {{`lower-to-emulator`: arrays of a thread may have 65,536 B in all, found 65,540 B; keep them in shared memory}}
    gpu.func @large() kernel attributes {tilewright.launch = {grid = 1 : i64, block = 32 : i64}} {
      %a = memref.alloca() : memref<16384xf32>
      %b = memref.alloca() : memref<f32>
      gpu.return
    }
  }
}
