// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-winograd))' --verify-diagnostics

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

func.func @six(%x: memref<1x12x12x16xf32>, %p: memref<9x3x3x16x16xf32>, %y: memref<1x10x10x16xf32>) {
  // expected-error @below {{`lower-winograd`: F(6, 3) has no transforms; use 2 or 4 for 3 taps}}
  linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : memref<1x12x12x16xf32>, memref<9x3x3x16x16xf32>) outs(%y : memref<1x10x10x16xf32>) attrs = {tilewright.winograd = 6 : i64} {
  ^bb0(%a: f32, %w: f32, %o: f32):
    %m = arith.mulf %a, %w : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }
  return
}
