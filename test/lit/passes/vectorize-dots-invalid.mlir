// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-dots{bf16=true vector=48}))' --verify-diagnostics

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

func.func @across_blocks(%a: memref<4x8xbf16>, %b: memref<3x4x32x2xbf16>, %c: memref<4x96xf32>) {
  // expected-error @below {{`vectorize-dots`: vector 48 crosses the blocks of 32 of a packed operand; use a divisor}}
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xbf16>, memref<3x4x32x2xbf16>) outs(%c : memref<4x96xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
