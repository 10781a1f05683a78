// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-fourier))' --split-input-file 2>&1 | filecheck %s

// CHECK: `tilewright.fourier`: expected `kind`, one of complex, of_real, to_real, found "sine"
func.func @kind(%x: memref<4x8xf32>, %roots: memref<8x2xf32>) {
  "tilewright.fourier"(%x, %x, %roots, %x, %x) {kind = "sine", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<4x8xf32>, memref<4x8xf32>, memref<8x2xf32>, memref<4x8xf32>, memref<4x8xf32>) -> ()
  return
}

// -----

// CHECK: `tilewright.fourier`: expected operands of shape [4, 5]
func.func @shape(%x: memref<4x8xf32>, %roots: memref<8x2xf32>) {
  "tilewright.fourier"(%x, %roots, %x, %x) {kind = "of_real", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<4x8xf32>, memref<8x2xf32>, memref<4x8xf32>, memref<4x8xf32>) -> ()
  return
}

// -----

// CHECK: `tilewright.fourier`: a transform of length 37 is none of those that are computed
func.func @prime(%x: memref<4x37xf32>, %roots: memref<37x2xf32>) {
  "tilewright.fourier"(%x, %x, %roots, %x, %x) {kind = "complex", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<4x37xf32>, memref<4x37xf32>, memref<37x2xf32>, memref<4x37xf32>, memref<4x37xf32>) -> ()
  return
}

// -----

// CHECK: `lower-fourier`: expected buffers of static shape, found memref<?x8xf32>; compile for fixed shapes
func.func @dynamic(%x: memref<?x8xf32>, %roots: memref<8x2xf32>) {
  "tilewright.fourier"(%x, %x, %roots, %x, %x) {kind = "complex", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<?x8xf32>, memref<?x8xf32>, memref<8x2xf32>, memref<?x8xf32>, memref<?x8xf32>) -> ()
  return
}
