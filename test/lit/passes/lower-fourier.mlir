// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-fourier{vector-bits=256}))' --split-input-file | filecheck %s

// Lines along memory are transposed into scratch, transformed by columns and rows, and transposed out of it.
// CHECK-LABEL: func.func @along_memory
// CHECK-COUNT-2: memref.alloc() : memref<130x8xf32>
// CHECK: scf.for {{.+}} {
// CHECK-COUNT-8: vector.load %arg0{{.+}} : memref<32x64xf32>, vector<8xf32>
// CHECK-COUNT-24: vector.shuffle
// CHECK: vector.load %arg1
// CHECK: scf.for
// CHECK-COUNT-16: vector.load %alloc[{{.+}} : memref<130x8xf32>, vector<8xf32>
// CHECK: memref.load %arg2
// CHECK: math.fma
// CHECK: scf.for
// CHECK-COUNT-8: vector.store {{.+}}, %arg3
// CHECK: vector.store {{.+}}, %arg4
// CHECK-NOT: tilewright.fourier
func.func @along_memory(%x: memref<32x64xf32>, %y: memref<32x64xf32>, %roots: memref<64x2xf32>, %a: memref<32x64xf32>, %b: memref<32x64xf32>) {
  "tilewright.fourier"(%x, %y, %roots, %a, %b) {kind = "complex", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<32x64xf32>, memref<32x64xf32>, memref<64x2xf32>, memref<32x64xf32>, memref<32x64xf32>) -> ()
  return
}

// -----

// Lines side by side are read and written where they lie; the last vector overlaps the one before it. Two real rows are one number.
// CHECK-LABEL: func.func @side_by_side
// CHECK: scf.for
// CHECK: arith.minsi
// CHECK-COUNT-8: vector.load %arg0{{.+}} : memref<3x8x9xf32>, vector<8xf32>
// CHECK: arith.addf
// CHECK: vector.store {{.+}}, %arg2{{.+}} : memref<3x5x9xf32>, vector<8xf32>
// CHECK: vector.store {{.+}}, %arg3
// CHECK-NOT: tilewright.fourier
func.func @side_by_side(%x: memref<3x8x9xf32>, %roots: memref<8x2xf32>, %a: memref<3x5x9xf32>, %b: memref<3x5x9xf32>) {
  "tilewright.fourier"(%x, %roots, %a, %b) {kind = "of_real", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<3x8x9xf32>, memref<8x2xf32>, memref<3x5x9xf32>, memref<3x5x9xf32>) -> ()
  return
}

// -----

// What is strided along memory is read element by element.
// CHECK-LABEL: func.func @strided
// CHECK: memref.load %arg0
// CHECK: vector.from_elements
// CHECK-NOT: tilewright.fourier
func.func @strided(%x: memref<8x4x8xf32, strided<[64, 16, 2]>>, %y: memref<8x4x8xf32>, %roots: memref<4x2xf32>, %a: memref<8x4x8xf32>, %b: memref<8x4x8xf32>) {
  "tilewright.fourier"(%x, %y, %roots, %a, %b) {kind = "complex", dimension = 1 : i64, resultSegmentSizes = array<i32: 0, 0>}
    : (memref<8x4x8xf32, strided<[64, 16, 2]>>, memref<8x4x8xf32>, memref<4x2xf32>, memref<8x4x8xf32>, memref<8x4x8xf32>) -> ()
  return
}
