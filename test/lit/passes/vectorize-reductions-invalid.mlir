// RUN: tilewright-opt %s --vectorize-reductions=vector=6 --verify-diagnostics

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 8, d2, d1 mod 8)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @across_blocks(%a: memref<4x8xf32>, %b: memref<2x8x8xf32>, %c: memref<4x16xf32>) {
  // expected-error @below {{`vectorize-reductions`: vector 6 crosses the blocks of 8 of a packed operand of dispatch @across_blocks; use a divisor}}
  linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xf32>, memref<2x8x8xf32>) outs(%c : memref<4x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
