// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(vectorize-dots{bf16=true}))' --verify-diagnostics

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @across_blocks(%a: memref<4x8xbf16>, %b: memref<3x4x32x2xbf16>, %c: memref<4x96xf32>) {
  // expected-error @below {{dispatch @across_blocks: illegal schedule: reductions say `dots 4x48`: vector 48 crosses the blocks of 32 of a packed operand; use a divisor}}
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xbf16>, memref<3x4x32x2xbf16>) outs(%c : memref<4x96xf32>) attrs = {tilewright.loops = {dots = [4, 48]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#quads = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2 floordiv 4, d1 mod 16, d2 mod 4)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// No instruction of this target multiplies bytes.
func.func @bytes(%a: memref<2x8xi8>, %w: memref<1x2x16x4xi8>, %c: memref<2x16xi32>) {
  // expected-error @below {{reductions say `dots 2x16`: this reduction has no such loops once it is cut}}
  linalg.generic {indexing_maps = [#left, #quads, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<2x8xi8>, memref<1x2x16x4xi8>) outs(%c : memref<2x16xi32>) attrs = {tilewright.loops = {dots = [2, 16]}} {
  ^bb0(%x: i8, %y: i8, %o: i32):
    %x1 = arith.extui %x : i8 to i32
    %y1 = arith.extsi %y : i8 to i32
    %p = arith.muli %x1, %y1 : i32
    %s = arith.addi %o, %p : i32
    linalg.yield %s : i32
  }
  return
}

// -----

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @half_pairs(%a: memref<32x192xbf16>, %w: memref<1x96x32x2xbf16>, %c: memref<32x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<32x32xf32>)
  // expected-error @below {{reductions say `dots 2x32 in depths of 33`: depth is 33 of 192, which cuts the 2 steps that one instruction takes; leave depth out}}
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x192xbf16>, memref<1x96x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {depth = 33, dots = [2, 32]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
