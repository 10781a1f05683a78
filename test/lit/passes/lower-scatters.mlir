// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-scatters{vector-bits=512}))' | filecheck %s

// Vectors of a slice are added to those of the slice that it is meant for.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[U:.+]]: memref<9x1x40xf32>, %[[AT:.+]]: memref<9x1xi64>, %[[OUT:.+]]: memref<5x40xf32>
// CHECK: scf.for %[[I:.+]] = %{{.+}} to %{{.+}} step %{{.+}} {
// CHECK: %[[N:.+]] = memref.load %[[AT]][%[[I]], %{{.+}}]
// CHECK: %[[ROW:.+]] = arith.index_cast %[[N]] : i64 to index
// CHECK: scf.for %[[J:.+]] =
// CHECK: %[[NEW:.+]] = vector.load %[[U]][%[[I]], %{{.+}}, %[[J]]] : memref<9x1x40xf32>, vector<16xf32>
// CHECK: %[[OLD:.+]] = vector.load %[[OUT]][%[[ROW]], %[[J]]] : memref<5x40xf32>, vector<16xf32>
// CHECK: %[[SUM:.+]] = arith.addf %[[OLD]], %[[NEW]]
// CHECK: vector.store %[[SUM]], %[[OUT]][%[[ROW]], %[[J]]]
// CHECK: vector.load %[[U]]{{.*}} vector<8xf32>
// CHECK-NOT: tm_tensor.scatter
// CHECK: return
func.func @rows(%u: memref<9x1x40xf32>, %at: memref<9x1xi64>, %out: memref<5x40xf32>) {
  tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %at : memref<9x1x40xf32>, memref<9x1xi64>) outs(%out : memref<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}

// Numbers along the last dimension make no vectors: upstream lowers these.
// CHECK-LABEL: func.func @elements(
// CHECK: tm_tensor.scatter
func.func @elements(%u: memref<9xf32>, %at: memref<9x1xi64>, %x: memref<5xf32>) {
  tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%u, %at : memref<9xf32>, memref<9x1xi64>) outs(%x : memref<5xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}

// What a cast forgot of how a buffer lies is known again.
// CHECK-LABEL: func.func @cast(
// CHECK: vector.load %arg0{{.*}} : memref<9x1x40xf32>, vector<16xf32>
// CHECK-NOT: tm_tensor.scatter
func.func @cast(%u: memref<9x1x40xf32>, %at: memref<9x1xi64>, %out: memref<5x40xf32>) {
  %c = memref.cast %u : memref<9x1x40xf32> to memref<9x1x40xf32, strided<[?, ?, ?], offset: ?>>
  tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%c, %at : memref<9x1x40xf32, strided<[?, ?, ?], offset: ?>>, memref<9x1xi64>) outs(%out : memref<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  }
  return
}

// A scatter into several lines is one into each: vectors where slices are, upstream's loops of elements.
// CHECK-LABEL: func.func @lines_of_rows(
// CHECK: scf.for %[[L:.+]] = %{{.+}} to %[[EIGHT:.+]] step
// CHECK-DAG: memref.subview %arg0[%{{.+}}, 0, 0] [3, 1, 40] [1, 1, 1]
// CHECK-DAG: memref.subview %arg2[%{{.+}}, 0] [5, 40] [1, 1]
// CHECK: vector.store %{{.+}} vector<16xf32>
// CHECK-NOT: tm_tensor.scatter
// CHECK-LABEL: func.func @lines_of_elements(
// CHECK: %[[FIRST:.+]] = affine.apply #{{.+}}(%[[L:.+]])
// CHECK: %[[U:.+]] = memref.subview %arg0[%[[FIRST]]] [3] [1] : memref<24xf32> to memref<3xf32, strided<[1], offset: ?>>
// CHECK: %[[AT:.+]] = memref.subview %arg1[%{{.+}}, 0] [3, 1] [1, 1]
// CHECK: %[[X:.+]] = memref.subview %arg2[%{{.+}}] [256] [1]
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%[[U]], %[[AT]] : {{.*}}) outs(%[[X]]
func.func @lines_of_rows(%u: memref<24x1x40xf32>, %at: memref<24x1xi64>, %out: memref<40x40xf32>) {
  tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 8 : i64} unique_indices(false) ins(%u, %at : memref<24x1x40xf32>, memref<24x1xi64>) outs(%out : memref<40x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}
func.func @lines_of_elements(%u: memref<24xf32>, %at: memref<24x1xi64>, %x: memref<2048xf32>) {
  tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 8 : i64} unique_indices(false) ins(%u, %at : memref<24xf32>, memref<24x1xi64>) outs(%x : memref<2048xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}
