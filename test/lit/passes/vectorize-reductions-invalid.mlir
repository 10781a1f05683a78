// RUN: tilewright-opt %s --split-input-file --vectorize-reductions --verify-diagnostics

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 8, d2, d1 mod 8)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @across_blocks(%a: memref<4x8xf32>, %b: memref<2x8x8xf32>, %c: memref<4x16xf32>) {
  // expected-error @below {{dispatch @across_blocks: illegal schedule: reductions say `products 4x6`: vector 6 crosses the blocks of 8 of a packed operand; use a divisor}}
  linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xf32>, memref<2x8x8xf32>) outs(%c : memref<4x16xf32>) attrs = {tilewright.loops = {products = [4, 6]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @more_rows(%a: memref<4x8xf32>, %b: memref<8x16xf32>, %c: memref<4x16xf32>) {
  // expected-error @below {{unroll is 5, its loop has 4; use at most that}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xf32>, memref<8x16xf32>) outs(%c : memref<4x16xf32>) attrs = {tilewright.loops = {products = [5, 16]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @thousands_of_registers(%a: memref<64x8xf32>, %b: memref<8x512xf32>, %c: memref<64x512xf32>) {
  // expected-error @below {{its sizes take 2048 accumulators, over 4 times the 32 registers of the target; use smaller ones}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<64x8xf32>, memref<8x512xf32>) outs(%c : memref<64x512xf32>) attrs = {tilewright.loops = {products = [64, 512]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// Columns are not contiguous here.
func.func @strided(%a: memref<8x16xf32, strided<[32, 2]>>, %c: memref<16xf32>) {
  // expected-error @below {{reductions say `products 1x16`: this reduction has no such loops once it is cut}}
  linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (n)>], iterator_types = ["reduction", "parallel"]}
      ins(%a : memref<8x16xf32, strided<[32, 2]>>) outs(%c : memref<16xf32>) attrs = {tilewright.loops = {products = [1, 16]}} {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %o, %x : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// Differences may not be regrouped.
func.func @alternating(%a: memref<8x16xf32>, %c: memref<8xf32>) {
  // expected-error @below {{reductions say `along 4x1x1`: this reduction has no such loops once it is cut}}
  linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<8x16xf32>) outs(%c : memref<8xf32>) attrs = {tilewright.loops = {along = [4, 1, 1]}} {
  ^bb0(%x: f32, %o: f32):
    %s = arith.subf %x, %o : f32
    linalg.yield %s : f32
  }
  return
}

// -----

// One vector of the reduction keeps one accumulator busy.
func.func @chains(%a: memref<8x16xf32>, %c: memref<8xf32>) {
  // expected-error @below {{chains is 2, its loop has 1; use at most that}}
  linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<8x16xf32>) outs(%c : memref<8xf32>) attrs = {tilewright.loops = {along = [4, 1, 2]}} {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %x, %o : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @no_groups(%a: memref<4x8xf32>, %b: memref<8x16xf32>, %c: memref<4x16xf32>) {
  // expected-error @below {{reductions say `groups 4`: this reduction has no such loops once it is cut}}
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xf32>, memref<8x16xf32>) outs(%c : memref<4x16xf32>) attrs = {tilewright.loops = {groups = [4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

func.func @the_same_row_each_time(%x: memref<1x64xf32>, %s: memref<1xf32>) {
  // expected-error @below {{illegal schedule: prefetch is 4096, but rTasks take no rows of what this reduction walks; leave it out}}
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<1x64xf32>) outs(%s : memref<1xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}, tilewright.prefetch = 4096} {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  }
  return
}
