// RUN: tilewright-opt %s --place-scratch --split-input-file --verify-diagnostics

func.func @dynamic(%task: index, %n: index, %status: memref<1xi32>, %scratch: memref<1099511627776xi8>) {
  // expected-error @below {{`place-scratch`: expected a static shape, found a temporary of type memref<?xf32>; tile it to a static one}}
  %a = memref.alloc(%n) : memref<?xf32>
  return
}

// -----

// expected-error @below {{`place-scratch`: expected a kernel (rTask index first, memref<1xi32> and memref<...xi8> last); run `form-kernels` first}}
func.func @no_kernel(%x: memref<8xf32>) {
  return
}
