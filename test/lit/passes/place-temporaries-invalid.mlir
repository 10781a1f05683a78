// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(place-temporaries))' --split-input-file --verify-diagnostics

func.func @dynamic(%task: index, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  // expected-error @below {{`place-temporaries`: expected a static shape, found a temporary of type memref<?xf32>; tile it to a static one}}
  %t = memref.alloc(%task) : memref<?xf32>
  return
}

// -----

// expected-error @below {{`place-temporaries`: expected a kernel (rTask index first, memref<1xi32> and memref<...xi8> last); run `form-kernels` first}}
func.func @no_kernel(%out: memref<8xf32>) {
  return
}
