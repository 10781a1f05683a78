// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(tile-dots{bf16=true}))' --verify-diagnostics

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>

func.func @odd_depths(%a: memref<32x9xbf16>, %w: memref<1x5x32x2xbf16>, %c: memref<32x32xf32>) {
  // expected-error @below {{dispatch @odd_depths: illegal schedule: reductions say `tiles`: it does not fit the tiles of this target; use dots}}
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x9xbf16>, memref<1x5x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {tiles = []}} {
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
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>

func.func @uneven_blocks(%a: memref<32x192xbf16>, %w: memref<1x96x32x2xbf16>, %c: memref<32x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<32x32xf32>)
  // expected-error @below {{reductions say `tiles in depths of 128`: depth is 128, which leaves a smaller block of [192]; use blocks that are all alike}}
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x192xbf16>, memref<1x96x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {depth = 128, tiles = []}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
