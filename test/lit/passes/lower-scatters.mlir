// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-scatters{vector-bits=512}))' | filecheck %s

// Vectors of a slice are added to those of the slice that it is meant for; buffers that copies alone filled are not needed.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[U:.+]]: memref<9x1x40xf32>, %[[AT:.+]]: memref<9x1xi64>, %[[X:.+]]: memref<5x40xf32>, %[[OUT:.+]]: memref<5x40xf32>
// CHECK: memref.copy %[[X]], %[[OUT]]
// CHECK-NOT: memref.copy
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
func.func @rows(%u: memref<9x1x40xf32>, %at: memref<9x1xi64>, %x: memref<5x40xf32>, %out: memref<5x40xf32>) {
  %b = memref.alloc() : memref<9x1x40xf32>
  memref.copy %u, %b : memref<9x1x40xf32> to memref<9x1x40xf32>
  %r = memref.alloc() : memref<5x40xf32>
  memref.copy %x, %r : memref<5x40xf32> to memref<5x40xf32>
  tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%b, %at : memref<9x1x40xf32>, memref<9x1xi64>) outs(%r : memref<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  }
  memref.copy %r, %out : memref<5x40xf32> to memref<5x40xf32>
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

// What is written over the argument itself is not copied.
// CHECK-LABEL: func.func @over(
// CHECK-SAME: %[[U:.+]]: memref<9x1x40xf32>, %[[AT:.+]]: memref<9x1xi64>, %[[OUT:.+]]: memref<5x40xf32>
// CHECK-NOT: memref.copy
// CHECK: vector.store %{{.+}}, %[[OUT]]
// CHECK: return
func.func @over(%u: memref<9x1x40xf32>, %at: memref<9x1xi64>, %out: memref<5x40xf32>) {
  %r = memref.alloc() : memref<5x40xf32>
  memref.copy %out, %r : memref<5x40xf32> to memref<5x40xf32>
  tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%u, %at : memref<9x1x40xf32>, memref<9x1xi64>) outs(%r : memref<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  }
  memref.copy %r, %out : memref<5x40xf32> to memref<5x40xf32>
  return
}
