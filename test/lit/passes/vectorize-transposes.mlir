// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-transposes{vector-bits=128}),canonicalize)' | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#rows = affine_map<(d0, d1) -> (d0)>
#block = affine_map<(d0, d1) -> (d1 floordiv 4, d0, d1 mod 4)>

// Four vectors along the rows become four along the columns in two rounds; the last of ten rows overlap.
// CHECK-LABEL: func.func @with_bias
// CHECK-NOT: linalg
// CHECK: scf.for %[[I:.+]] = %c0 to %c12 step %c4
// CHECK: %[[ROW:.+]] = arith.minsi %[[I]], %c6
// CHECK: scf.for %[[J:.+]] = %c0 to %c8 step %c4
// CHECK: vector.load %arg0[%[[J]], %[[ROW]]] : memref<8x10xf32>, vector<4xf32>
// CHECK-COUNT-3: vector.load %arg0
// CHECK: vector.shuffle {{.*}} [0, 4, 2, 6]
// CHECK: vector.shuffle {{.*}} [1, 5, 3, 7]
// CHECK: vector.shuffle {{.*}} [0, 1, 4, 5]
// CHECK: memref.load %arg1[%[[ROW]]]
// CHECK: %[[S:.+]] = arith.addf {{.*}} : vector<4xf32>
// CHECK: vector.store %[[S]], %arg2[%[[ROW]], %[[J]]] : memref<10x8xf32>, vector<4xf32>
func.func @with_bias(%x: memref<8x10xf32>, %b: memref<10xf32>, %y: memref<10x8xf32>) {
  linalg.generic {indexing_maps = [#swap, #rows, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : memref<8x10xf32>, memref<10xf32>) outs(%y : memref<10x8xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %c : f32
    linalg.yield %s : f32
  }
  return
}

// All along one loop: nothing to transpose.
// CHECK-LABEL: func.func @straight
// CHECK: linalg.generic
func.func @straight(%x: memref<8x8xf32>, %y: memref<8x8xf32>) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<8x8xf32>) outs(%y : memref<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// Three columns are too few for blocks.
// CHECK-LABEL: func.func @narrow
// CHECK: linalg.generic
func.func @narrow(%x: memref<3x8xf32>, %y: memref<8x3xf32>) {
  linalg.generic {indexing_maps = [#swap, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<3x8xf32>) outs(%y : memref<8x3xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// An overlapping block would add twice, in place or by the body.
// CHECK-LABEL: func.func @in_place
// CHECK: linalg.generic
// CHECK-LABEL: func.func @accumulates
// CHECK: linalg.generic
func.func @in_place(%x: memref<8x10xf32>, %y: memref<10x8xf32>) {
  linalg.generic {indexing_maps = [#swap, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : memref<8x10xf32>, memref<10x8xf32>) outs(%y : memref<10x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  }
  return
}

func.func @accumulates(%x: memref<8x10xf32>, %y: memref<10x8xf32>) {
  linalg.generic {indexing_maps = [#swap, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<8x10xf32>) outs(%y : memref<10x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  }
  return
}

// Packed in blocks along the columns: a step is no constant.
// CHECK-LABEL: func.func @packed
// CHECK: linalg.generic
func.func @packed(%x: memref<8x8xf32>, %p: memref<2x8x4xf32>, %y: memref<8x8xf32>) {
  linalg.generic {indexing_maps = [#swap, #block, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %p : memref<8x8xf32>, memref<2x8x4xf32>) outs(%y : memref<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  }
  return
}

#filter = affine_map<(c, f, h, w) -> (c, f, h, w)>
#last = affine_map<(c, f, h, w) -> (f, h, w, c)>
#height = affine_map<(c, f, h, w) -> (h)>

// Loops that go on where the next one ends, in all operands, are one: blocks fill vectors, and write lines whole.
// CHECK-LABEL: func.func @joined
// CHECK: %[[X:.+]] = memref.collapse_shape %arg0 {{\[}}[0, 1, 2], [3]] : memref<5x3x2x9xf32> into memref<30x9xf32>
// CHECK: %[[Y:.+]] = memref.collapse_shape %arg1 {{\[}}[0], [1, 2, 3]] : memref<9x5x3x2xf32> into memref<9x30xf32>
// CHECK: vector.load %[[X]]{{.*}} : memref<30x9xf32>, vector<4xf32>
// CHECK: vector.store %{{.+}}, %[[Y]]{{.*}} : memref<9x30xf32>, vector<4xf32>
// CHECK-NOT: linalg
func.func @joined(%x: memref<5x3x2x9xf32>, %y: memref<9x5x3x2xf32>) {
  linalg.generic {indexing_maps = [#last, #filter], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<5x3x2x9xf32>) outs(%y : memref<9x5x3x2xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// A cut between them keeps what lies outside apart.
// CHECK-LABEL: func.func @cut
// CHECK: memref.collapse_shape %arg0 {{\[}}[0], [1, 2], [3]] : memref<5x3x2x9xf32> into memref<5x6x9xf32>
// CHECK: memref.collapse_shape %{{.+}} {{\[}}[0], [1], [2, 3]] : memref<9x5x3x2xf32, strided<[40, 8, 2, 1], offset: ?>> into memref<9x5x6xf32, strided<[40, 8, 1], offset: ?>>
// CHECK: vector.store {{.*}} memref<9x5x6xf32, strided<[40, 8, 1], offset: ?>>, vector<4xf32>
func.func @cut(%x: memref<5x3x2x9xf32>, %y: memref<9x5x4x2xf32>, %at: index) {
  %part = memref.subview %y[0, 0, %at, 0] [9, 5, 3, 2] [1, 1, 1, 1]
      : memref<9x5x4x2xf32> to memref<9x5x3x2xf32, strided<[40, 8, 2, 1], offset: ?>>
  linalg.generic {indexing_maps = [#last, #filter], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<5x3x2x9xf32>) outs(%part : memref<9x5x3x2xf32, strided<[40, 8, 2, 1], offset: ?>>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// So does an operand that follows one of them alone; two columns are too few then.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: memref.collapse_shape
// CHECK: linalg.generic
func.func @apart(%x: memref<5x3x2x9xf32>, %s: memref<3xf32>, %y: memref<9x5x3x2xf32>) {
  linalg.generic {indexing_maps = [#last, #height, #filter], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %s : memref<5x3x2x9xf32>, memref<3xf32>) outs(%y : memref<9x5x3x2xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  }
  return
}
