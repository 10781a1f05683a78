// RUN: tilewright-opt %s --split-input-file --vectorize-reductions --verify-diagnostics

func.func @all_steps(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  // expected-error @below {{reductions say `products 2x4 in depths of 10`: depth is 10, its reduction has 10 steps; use fewer, or leave depth out}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%c : memref<4x8xf32>) attrs = {tilewright.loops = {depth = 10, products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @one_column(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  // expected-error @below {{order is columns, but an rTask has 2 x 1 register tiles, which go along rows too; leave order out}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%c : memref<4x8xf32>) attrs = {tilewright.loops = {order = "columns", products = [2, 8]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @no_images(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  // expected-error @below {{order is panels, but an rTask has 2 panels and 1 rows of register tiles to pass each, which go along rows too; leave order out}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%c : memref<4x8xf32>) attrs = {tilewright.loops = {order = "panels", products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @no_order(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  // expected-error @below {{`tilewright.loops`: order is rows, columns or panels, found diagonals}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%c : memref<4x8xf32>) attrs = {tilewright.loops = {order = "diagonals", products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @in_another_kind(%a: memref<4x10xf32>, %b: memref<10x8xf32>, %c: memref<4x8xf32>) {
  // expected-error @below {{`tilewright.loops`: depth is a field of products, dots, tiles, winograd; leave it out of along}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x10xf32>, memref<10x8xf32>) outs(%c : memref<4x8xf32>) attrs = {tilewright.loops = {along = [2, 2, 1], depth = 4}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// Blocks are whole steps of a loop: of the channels here, or of the taps with all channels.
func.func @part_of_a_tap(%a: memref<4x4x6xf32>, %b: memref<2x6x8xf32>, %c: memref<3x4x8xf32>) {
  // expected-error @below {{depth is 8, no whole steps of its reduction's loops [2, 6]; use a number of steps of one of them with all of those inside of it}}
  linalg.generic {indexing_maps = [affine_map<(h, w, n, t, c) -> (h + t, w, c)>, affine_map<(h, w, n, t, c) -> (t, c, n)>, affine_map<(h, w, n, t, c) -> (h, w, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b : memref<4x4x6xf32>, memref<2x6x8xf32>) outs(%c : memref<3x4x8xf32>) attrs = {tilewright.loops = {depth = 8, products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
