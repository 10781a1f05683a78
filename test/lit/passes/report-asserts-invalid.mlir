// RUN: tilewright-opt %s --report-asserts --split-input-file --verify-diagnostics

// expected-error @below {{`report-asserts`: expected a kernel (rTask index first, memref<1xi32> and memref<...xi8> last); run `form-kernels` first}}
func.func @no_kernel(%x: memref<8xf32>, %ok: i1) {
  cf.assert %ok, "fine"
  return
}

// -----

// The order of status and scratch matters.
// expected-error @below {{`report-asserts`: expected a kernel}}
func.func @swapped(%task: index, %scratch: memref<8xi8>, %status: memref<1xi32>) {
  return
}
