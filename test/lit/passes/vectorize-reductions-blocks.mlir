// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-reductions),canonicalize)' | filecheck %s

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#image = affine_map<(d0, d1, d2, d3, d4) -> (d0 + d3, d1, d4)>
#filter = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>

// Blocks of four of ten steps, the last of two: sums start from the fill in the first one and from memory in the others,
// and the epilogue computes on them behind the last. Register tiles go along columns first: rows are the outer loop.
// CHECK-LABEL: func.func @blocks
// CHECK-NOT: linalg
// CHECK: %[[START:.+]] = arith.constant dense<0.000000e+00> : vector<4xf32>
// CHECK: %[[T:.+]] = memref.alloc
// CHECK: scf.for %[[K0:.+]] = %c0 to %c10 step %c4
// CHECK: %[[FIRST:.+]] = arith.cmpi eq, %[[K0]], %c0
// CHECK: %[[LAST:.+]] = arith.cmpi eq, %[[K0]], %c8
// CHECK: scf.for %[[M:.+]] = %c0 to %c4 step %c2
// CHECK: scf.for %[[N:.+]] = %c0 to %c8 step %c4
// CHECK: %[[SUMS:.+]]:2 = scf.if %[[FIRST]]
// CHECK-NEXT: scf.yield %[[START]], %[[START]]
// CHECK: vector.load %[[T]][%[[M]], %[[N]]]
// CHECK: %[[LEFT:.+]] = arith.subi %c10, %[[K0]]
// CHECK: %[[STEPS:.+]] = arith.minsi %[[LEFT]], %c4
// CHECK: %[[ADDED:.+]]:2 = scf.for %[[K1:.+]] = %c0 to %[[STEPS]] {{.*}} = %[[SUMS]]#0, {{.*}} = %[[SUMS]]#1
// CHECK: %[[K:.+]] = arith.addi %[[K0]], %[[K1]]
// CHECK: vector.load %arg1[%[[K]], %[[N]]]
// CHECK: scf.if %[[LAST]]
// CHECK: arith.negf %[[ADDED]]#0
// CHECK: vector.store {{.*}}, %arg2
// CHECK: else
// CHECK: vector.store %[[ADDED]]#0, %[[T]][%[[M]], %[[N]]]
func.func @blocks(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<4x8xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<4x8xf32>)
  linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%t : memref<4x8xf32>)
      attrs = {tilewright.loops = {depth = 4, order = "columns", products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : memref<4x8xf32>) outs(%c : memref<4x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.negf %x : f32
    linalg.yield %r : f32
  }
  return
}

// Blocks that divide count their steps at compile time. Without a fill all blocks start from memory.
// CHECK-LABEL: func.func @onto
// CHECK: scf.for %[[K0:.+]] = %c0 to %c10 step %c5
// CHECK-NOT: scf.if
// CHECK: %[[START:.+]] = vector.load %arg2
// CHECK: scf.for %{{.+}} = %c0 to %c5 {{.*}} iter_args(%{{.+}} = %[[START]]
// CHECK-NOT: scf.if
// CHECK-LABEL: func.func @panels
func.func @onto(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%c : memref<4x8xf32>)
      attrs = {tilewright.loops = {depth = 5, products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// A panel of filters stays while all rows of the image pass. Its six steps are blocks of one tap each, with all channels.
// CHECK: scf.for %[[TAP:.+]] = %c0 to %c2
// CHECK: scf.for %[[N:.+]] = %c0 to %c8 step %c4
// CHECK: scf.for %[[H:.+]] = %c0 to %c3
// CHECK: scf.for %[[W:.+]] = %c0 to %c4 step %c2
// CHECK: scf.for %[[C:.+]] = %c0 to %c3
// CHECK: vector.load %arg1[%{{.+}}, %[[C]], %[[N]]]
// CHECK-LABEL: func.func @rows
func.func @panels(%a: memref<4x4x3xf32>, %b: memref<2x3x8xf32>, %c: memref<3x4x8xf32>) {
  linalg.generic {indexing_maps = [#image, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b : memref<4x4x3xf32>, memref<2x3x8xf32>) outs(%c : memref<3x4x8xf32>)
      attrs = {tilewright.loops = {depth = 3, order = "panels", products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Where nothing is said, each row of the image passes all filters before the next one does.
// CHECK: scf.for %[[H:.+]] = %c0 to %c3
// CHECK: scf.for %[[N:.+]] = %c0 to %c8 step %c4
// CHECK: scf.for %[[W:.+]] = %c0 to %c4 step %c2
func.func @rows(%a: memref<4x4x3xf32>, %b: memref<2x3x8xf32>, %c: memref<3x4x8xf32>) {
  linalg.generic {indexing_maps = [#image, #filter, #result], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b : memref<4x4x3xf32>, memref<2x3x8xf32>) outs(%c : memref<3x4x8xf32>)
      attrs = {tilewright.loops = {products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
