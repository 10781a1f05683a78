// RUN: tilewright-opt %s --pass-pipeline='builtin.module(form-gpu-kernels)' --split-input-file --verify-diagnostics

// expected-error @below {{`form-gpu-kernels`: expected one kernel, found 2; lower dispatches one by one}}
module {
  func.func @a() { return }
  func.func @b() { return }
}

// -----

// expected-error @below {{`form-gpu-kernels`: expected a kernel (rTask index first, memref<1xi32> and memref<...xi8> last); run `form-kernels` first}}
func.func @no_kernel(%out: memref<8xf32>) {
  return
}

// -----

// expected-error @below {{`form-gpu-kernels`: expected the attribute `tilewright.tasks`; run `map-tasks` first}}
func.func @unmapped(%task: index, %status: memref<1xi32>, %scratch: memref<1024xi8>) {
  return
}
