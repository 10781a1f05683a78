// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(vectorize-windows{vector-bits=256 registers=16}))' | filecheck %s

// A depthwise convolution, 3 x 3: every input of a tile is loaded once, weights once per tap, and the sums start
// from the fill, which is gone.
// CHECK-LABEL: func.func @depthwise(
// CHECK-SAME: %[[X:.+]]: memref<8x8x16xf32>, %[[W:.+]]: memref<3x3x16xf32>, %[[Y:.+]]: memref<6x6x16xf32>
// CHECK-NOT: linalg
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for
// CHECK: vector.broadcast %{{.+}} : f32 to vector<8xf32>
// CHECK: vector.load %[[X]]{{.*}} : memref<8x8x16xf32>, vector<8xf32>
// CHECK: vector.load %[[W]]{{.*}} : memref<3x3x16xf32>, vector<8xf32>
// CHECK: arith.mulf {{.*}} fastmath<contract> : vector<8xf32>
// CHECK: arith.addf {{.*}} fastmath<contract> : vector<8xf32>
// CHECK: vector.store %{{.+}}, %[[Y]]
// CHECK-NOT: linalg
// CHECK: return
func.func @depthwise(%x: memref<8x8x16xf32>, %w: memref<3x3x16xf32>, %y: memref<6x6x16xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.fill ins(%c : f32) outs(%y : memref<6x6x16xf32>)
  linalg.generic {indexing_maps = [affine_map<(h, w, c, kh, kw) -> (h + kh, w + kw, c)>,
                                   affine_map<(h, w, c, kh, kw) -> (kh, kw, c)>,
                                   affine_map<(h, w, c, kh, kw) -> (h, w, c)>],
                  iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : memref<8x8x16xf32>, memref<3x3x16xf32>) outs(%y : memref<6x6x16xf32>) attrs = {tilewright.loops = {windows = [3, 3, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// A pooling with strides and no weights. It accumulates onto what is there, so tiles must not overlap: what does not
// fill a tile has one of its own.
// CHECK-LABEL: func.func @pool(
// CHECK-NOT: linalg
// CHECK: vector.load %arg1{{.*}} : memref<5x8xf32>, vector<8xf32>
// CHECK: vector.load %arg0
// CHECK: arith.maximumf
// CHECK: vector.store {{.*}}, %arg1
// CHECK-NOT: linalg
func.func @pool(%x: memref<11x8xf32>, %y: memref<5x8xf32>, %shape: memref<3xf32>) {
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w * 2 + k, c)>, affine_map<(w, c, k) -> (k)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %shape : memref<11x8xf32>, memref<3xf32>) outs(%y : memref<5x8xf32>) attrs = {tilewright.loops = {windows = [1, 3, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %r = arith.maximumf %s, %a : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// What follows element by element is computed on the sums before they are stored.
// CHECK-LABEL: func.func @relu(
// CHECK-NOT: linalg
// CHECK: %[[R:.+]] = arith.maximumf {{.*}} : vector<8xf32>
// CHECK: vector.store %[[R]], %arg2
// CHECK-NOT: linalg
func.func @relu(%x: memref<8x16xf32>, %w: memref<3x16xf32>, %y: memref<6x16xf32>) {
  %c = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<6x16xf32>
  linalg.fill ins(%c : f32) outs(%t : memref<6x16xf32>)
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16xf32>) outs(%t : memref<6x16xf32>) attrs = {tilewright.loops = {windows = [1, 6, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [affine_map<(w, c) -> (w, c)>, affine_map<(w, c) -> (w, c)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%t : memref<6x16xf32>) outs(%y : memref<6x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.maximumf %a, %c : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// Left to other passes: reductions that are marked for them, and one that is not marked.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: linalg.generic
func.func @others(%x: memref<8x16xf32>, %w: memref<3x16x8xf32>, %y: memref<6x8xf32>,
                  %w1: memref<1x16xf32>, %y1: memref<8x16xf32>, %xt: memref<16x8xf32>, %wt: memref<16x3xf32>, %yt: memref<16x6xf32>) {
  linalg.generic {indexing_maps = [affine_map<(w, o, k, c) -> (w + k, c)>, affine_map<(w, o, k, c) -> (k, c, o)>,
                                   affine_map<(w, o, k, c) -> (w, o)>],
                  iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : memref<8x16xf32>, memref<3x16x8xf32>) outs(%y : memref<6x8xf32>) attrs = {tilewright.loops = {products = [6, 8]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [affine_map<(w, c, k) -> (w + k, c)>, affine_map<(w, c, k) -> (k, c)>,
                                   affine_map<(w, c, k) -> (w, c)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w1 : memref<8x16xf32>, memref<1x16xf32>) outs(%y1 : memref<8x16xf32>) attrs = {tilewright.loops = {products = [4, 16]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [affine_map<(c, w, k) -> (c, w + k)>, affine_map<(c, w, k) -> (c, k)>,
                                   affine_map<(c, w, k) -> (c, w)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%xt, %wt : memref<16x8xf32>, memref<16x3xf32>) outs(%yt : memref<16x6xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %s, %m : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// Windows that slide along the innermost loop with a stride of 2: every second of 15 elements, out of two loads, and
// what a row of a window holds is combined once for both rows of the tile.
// CHECK-LABEL: func.func @along(
// CHECK-SAME: %[[X:.+]]: memref<7x17xf32>
// CHECK: %[[LOW:.+]] = vector.load %[[X]]{{.*}} : memref<7x17xf32>, vector<8xf32>
// CHECK: %[[HIGH:.+]] = vector.load %[[X]]{{.*}} : memref<7x17xf32>, vector<8xf32>
// CHECK: vector.shuffle %[[LOW]], %[[HIGH]] [0, 2, 4, 6, 9, 11, 13, 15] : vector<8xf32>, vector<8xf32>
// CHECK-COUNT-2: vector.store {{.*}}, %arg1
// CHECK-NOT: linalg
// CHECK: return
func.func @along(%x: memref<7x17xf32>, %y: memref<3x8xf32>, %shape: memref<3x3xf32>) {
  linalg.generic {indexing_maps = [affine_map<(h, w, i, j) -> (h * 2 + i, w * 2 + j)>, affine_map<(h, w, i, j) -> (i, j)>,
                                   affine_map<(h, w, i, j) -> (h, w)>],
                  iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %shape : memref<7x17xf32>, memref<3x3xf32>) outs(%y : memref<3x8xf32>) attrs = {tilewright.loops = {windows = [2, 1, 1]}} {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %r = arith.maximumf %s, %a : f32
    linalg.yield %r : f32
  }
  return
}
