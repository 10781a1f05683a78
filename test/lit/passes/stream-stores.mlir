// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(stream-stores))' | filecheck %s

// The first and the last vector by ordinary stores, where they are not aligned, aligned ones between them past the caches.
// The kernel is marked for a fence behind its last rTask.
// CHECK-LABEL: func.func @negate(
// CHECK-SAME: %[[X:.+]]: memref<1048576xf32>, %[[Y:.+]]: memref<1048576xf32>
// CHECK-SAME: tilewright.fence
// CHECK: memref.extract_aligned_pointer_as_index
// CHECK: scf.if
// CHECK: vector.store
// CHECK: scf.for %[[I:.+]] = %{{.+}} to %{{.+}} step %c16
// CHECK: %[[V:.+]] = vector.load %{{.+}}[%[[I]]]
// CHECK: %[[N:.+]] = arith.negf %[[V]]
// CHECK: vector.store %[[N]], %{{.+}}[%[[I]]] {alignment = 64 : i64, nontemporal = true}
// CHECK: scf.if
// CHECK: vector.store
// CHECK-NOT: sfence
// CHECK-NOT: linalg.generic
func.func @negate(%x: memref<1048576xf32>, %y: memref<1048576xf32>, %at: index) {
  %a = memref.subview %x[%at] [4096] [1] : memref<1048576xf32> to memref<4096xf32, strided<[1], offset: ?>>
  %b = memref.subview %y[%at] [4096] [1] : memref<1048576xf32> to memref<4096xf32, strided<[1], offset: ?>>
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%a : memref<4096xf32, strided<[1], offset: ?>>) outs(%b : memref<4096xf32, strided<[1], offset: ?>>) attrs = {tilewright.stream} {
  ^bb0(%s: f32, %o: f32):
    %n = arith.negf %s : f32
    linalg.yield %n : f32
  }
  return
}

// Rows of a larger tensor, each with its own alignment. What a row shares is loaded once.
// CHECK-LABEL: func.func @rows(
// CHECK: scf.for
// CHECK: memref.load %arg1
// CHECK: vector.store {{.*}} {alignment = 64 : i64, nontemporal = true} : memref<8x301xf32>, vector<16xf32>
// CHECK-NOT: linalg.generic
func.func @rows(%x: memref<8x301xf32>, %s: memref<8xf32>, %y: memref<8x301xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<8x301xf32>, memref<8xf32>) outs(%y : memref<8x301xf32>) attrs = {tilewright.stream} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.mulf %a, %b : f32
    linalg.yield %n : f32
  }
  return
}

// Left alone: what no schedule speaks of.
// CHECK-LABEL: func.func @unmarked(
// CHECK-SAME: memref<4096xf32>) {
// CHECK-NOT: nontemporal
// CHECK: linalg.generic
func.func @unmarked(%x: memref<4096xf32>, %y: memref<4096xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : memref<4096xf32>) outs(%y : memref<4096xf32>) {
  ^bb0(%s: f32, %o: f32):
    %n = arith.negf %s : f32
    linalg.yield %n : f32
  }
  return
}
