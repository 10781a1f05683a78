// RUN: tilewright-opt %s --pass-pipeline='builtin.module(gpu.module(gpu.func(place-shared{max-bytes=4096})))' --split-input-file --verify-diagnostics

gpu.module @kernels {
  // expected-error @below {{`place-shared`: @large needs 4,112 B of shared memory per block, the limit is 4,096 B; use fewer stages or a smaller tile}}
  gpu.func @large() kernel {
    %a = memref.alloc() : memref<1024xf32, #gpu.address_space<workgroup>>
    %b = memref.alloc() : memref<16xi8, #gpu.address_space<workgroup>>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @dynamic(%n: index) kernel {
    // expected-error @below {{`place-shared`: expected a static shape and the identity layout, found memref<?xf32, #gpu.address_space<workgroup>>; allocate it whole and take a subview for padding}}
    %a = memref.alloc(%n) : memref<?xf32, #gpu.address_space<workgroup>>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @aligned() kernel {
    // expected-error @below {{`place-shared`: expected an alignment of at most 1024 B, found 2048; ask for less}}
    %a = memref.alloc() {alignment = 2048 : i64} : memref<8xf32, #gpu.address_space<workgroup>>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @below {{`place-shared`: @attributed has workgroup attributions; allocate shared memory by memref.alloc instead}}
  gpu.func @attributed() workgroup(%a: memref<8xf32, #gpu.address_space<workgroup>>) kernel {
    gpu.return
  }
}
