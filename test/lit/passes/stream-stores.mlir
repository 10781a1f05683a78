// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(stream-stores{least-bytes=4194304}))' | filecheck %s

// 4 MiB in rTasks of 4096 elements: the first and the last vector by ordinary stores, aligned ones between them past
// the caches.
// CHECK-LABEL: func.func @negate(
// CHECK-SAME: %[[X:.+]]: memref<1048576xf32>, %[[Y:.+]]: memref<1048576xf32>
// CHECK: memref.extract_aligned_pointer_as_index
// CHECK: vector.store
// CHECK: scf.for %[[I:.+]] = %{{.+}} to %{{.+}} step %c16
// CHECK: %[[V:.+]] = vector.load %{{.+}}[%[[I]]]
// CHECK: %[[N:.+]] = arith.negf %[[V]]
// CHECK: vector.store %[[N]], %{{.+}}[%[[I]]] {alignment = 64 : i64, nontemporal = true}
// CHECK: vector.store
// CHECK: llvm.call_intrinsic "llvm.x86.sse.sfence"
// CHECK-NOT: linalg.generic
func.func @negate(%x: memref<1048576xf32>, %y: memref<1048576xf32>, %at: index) {
  %a = memref.subview %x[%at] [4096] [1] : memref<1048576xf32> to memref<4096xf32, strided<[1], offset: ?>>
  %b = memref.subview %y[%at] [4096] [1] : memref<1048576xf32> to memref<4096xf32, strided<[1], offset: ?>>
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%a : memref<4096xf32, strided<[1], offset: ?>>) outs(%b : memref<4096xf32, strided<[1], offset: ?>>) {
  ^bb0(%s: f32, %o: f32):
    %n = arith.negf %s : f32
    linalg.yield %n : f32
  }
  return
}

// Left alone: a result that the last cache holds, one that is read as well, and an operation on two loops.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: nontemporal
// CHECK-COUNT-3: linalg.generic
func.func @others(%x: memref<4096xf32>, %y: memref<4096xf32>, %u: memref<1048576xf32>, %v: memref<1024x1024xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : memref<4096xf32>) outs(%y : memref<4096xf32>) {
  ^bb0(%s: f32, %o: f32):
    %n = arith.negf %s : f32
    linalg.yield %n : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%u : memref<1048576xf32>) {
  ^bb0(%o: f32):
    %n = arith.negf %o : f32
    linalg.yield %n : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%v : memref<1024x1024xf32>) {
  ^bb0(%o: f32):
    %n = arith.constant 0.0 : f32
    linalg.yield %n : f32
  }
  return
}
