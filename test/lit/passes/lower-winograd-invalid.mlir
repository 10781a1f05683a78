// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(lower-winograd))' --verify-diagnostics

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @six(%x: memref<1x12x12x16xf32>, %p: memref<9x3x3x16x16xf32>, %y: memref<1x10x10x16xf32>) {
  // expected-error @below {{`lower-winograd`: F(6, 3) has no transforms; use 2 or 4 for 3 taps}}
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x16xf32>, memref<9x3x3x16x16xf32>) outs(%y : memref<1x10x10x16xf32>) attrs = {tilewright.loops = {winograd = [4, 16]}, tilewright.winograd = 6 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// Three rows are less than a tile.
func.func @small(%x: memref<1x5x12x16xf32>, %p: memref<5x3x3x16x16xf32>, %y: memref<1x3x10x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<1x3x10x16xf32>)
  // expected-error @below {{it is smaller than one tile of 4 x 4; use products}}
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x5x12x16xf32>, memref<5x3x3x16x16xf32>) outs(%y : memref<1x3x10x16xf32>) attrs = {tilewright.loops = {winograd = [9, 16]}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// An accumulation onto what is there would be repeated where tiles overlap.
func.func @accumulating(%z: memref<1x12x12x16xf32>, %p: memref<5x3x3x16x16xf32>, %v: memref<1x10x10x16xf32>) {
  // expected-error @below {{its sums start from values, or its channels are not neighbours; use products}}
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%z, %p : memref<1x12x12x16xf32>, memref<5x3x3x16x16xf32>) outs(%v : memref<1x10x10x16xf32>) attrs = {tilewright.loops = {winograd = [9, 16]}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// Every other channel of a larger image: no vector can be loaded.
func.func @strided(%x: memref<1x12x12x16xf32, strided<[4608, 384, 32, 2]>>, %p: memref<5x3x3x16x16xf32>, %y: memref<1x10x10x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<1x10x10x16xf32>)
  // expected-error @below {{its sums start from values, or its channels are not neighbours; use products}}
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x16xf32, strided<[4608, 384, 32, 2]>>, memref<5x3x3x16x16xf32>) outs(%y : memref<1x10x10x16xf32>) attrs = {tilewright.loops = {winograd = [9, 16]}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// The products sum over channels alone, not over the nine taps of each.
func.func @taps(%x: memref<1x12x12x64xf32>, %p: memref<5x3x3x64x16xf32>, %y: memref<1x10x10x16xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<1x10x10x16xf32>)
  // expected-error @below {{reductions say `winograd 9x16 in depths of 192`: depth is 192, its reduction has 64 steps; use fewer, or leave depth out}}
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x64xf32>, memref<5x3x3x64x16xf32>) outs(%y : memref<1x10x10x16xf32>) attrs = {tilewright.loops = {winograd = [9, 16], depth = 192 : i64}, tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}
