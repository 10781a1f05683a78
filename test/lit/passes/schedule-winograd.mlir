// RUN: tilewright-opt %s --pass-pipeline='builtin.module(schedule-winograd{target=x86-64-v4})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(schedule-winograd{target=x86-64-v4},apply-schedule)' | filecheck %s --check-prefix=APPLIED

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (0, r, s, c, f)>
#packed = affine_map<(n, h, w, f, r, s, c) -> (f floordiv 32, 0, r, s, c, f mod 32)>
#direct = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>
#id = affine_map<(n, h, w, f) -> (n, h, w, f)>
#last = affine_map<(n, f, h, w) -> (n, f, h, w)>
#turned = affine_map<(n, f, h, w) -> (n, h, w, f)>

// Rows of tiles: four rows of the image, or a multiple. The rTask keeps its convolution, on a smaller image.
// CHECK-LABEL: func.func private @rows
// CHECK-SAME: tilewright.predicted = {bound = "compute", us = {{[0-9.]+}} : f64}
// CHECK-SAME: tilewright.schedule = {{{.*}}tile = [0, {{4|8}}, {{[0-9]+}}, 0]
// APPLIED-LABEL: func.func private @rows
// APPLIED: scf.forall
// APPLIED: linalg.generic {{.*}}tilewright.winograd = 4
func.func private @rows(%x: tensor<1x58x58x64xf32>, %p: tensor<5x3x3x64x64xf32>) -> tensor<1x56x56x64xf32> attributes {tilewright.operator = "conv"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x56x56x64xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : tensor<1x58x58x64xf32>, tensor<5x3x3x64x64xf32>) outs(%i : tensor<1x56x56x64xf32>) attrs = {tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<1x56x56x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%r : tensor<1x56x56x64xf32>) outs(%e : tensor<1x56x56x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.maximumf %a, %zero : f32
    linalg.yield %m : f32
  } -> tensor<1x56x56x64xf32>
  return %y : tensor<1x56x56x64xf32>
}

// Many channels on few tiles: the filters are cut, in whole blocks, and the sink's loop of them is its second.
// CHECK-LABEL: func.func private @filters
// CHECK-SAME: tilewright.schedule = {{{.*}}tile = [0, {{32|64|128}}, 0, 0]
func.func private @filters(%x: tensor<1x16x16x256xf32>, %p: tensor<8x5x3x3x256x32xf32>) -> tensor<1x256x14x14xf32> attributes {tilewright.operator = "conv"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x14x14x256xf32>
  %t = tensor.empty() : tensor<1x256x14x14xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<1x14x14x256xf32>) -> tensor<1x14x14x256xf32>
  %r = linalg.generic {indexing_maps = [#data, #packed, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : tensor<1x16x16x256xf32>, tensor<8x5x3x3x256x32xf32>) outs(%i : tensor<1x14x14x256xf32>) attrs = {tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<1x14x14x256xf32>
  %y = linalg.generic {indexing_maps = [#turned, #last], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%r : tensor<1x14x14x256xf32>) outs(%t : tensor<1x256x14x14xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<1x256x14x14xf32>
  return %y : tensor<1x256x14x14xf32>
}

// A schedule that is there stays, and a direct convolution is none of this pass's.
// CHECK-LABEL: func.func private @given
// CHECK-SAME: tile = [0, 2, 0, 0]
func.func private @given(%x: tensor<1x10x10x8xf32>, %p: tensor<5x3x3x8x16xf32>, %i: tensor<1x8x8x16xf32>) -> tensor<1x8x8x16xf32> attributes {tilewright.operator = "conv", tilewright.schedule = {tile = [0, 2, 0, 0], unroll = 0 : i64, vector = 0 : i64}} {
  %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %p : tensor<1x10x10x8xf32>, tensor<5x3x3x8x16xf32>) outs(%i : tensor<1x8x8x16xf32>) attrs = {tilewright.winograd = 4 : i64} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x16xf32>
  return %r : tensor<1x8x8x16xf32>
}

// CHECK-LABEL: func.func private @direct
// CHECK-NOT: tilewright.schedule
func.func private @direct(%x: tensor<1x58x58x64xf32>, %w: tensor<3x3x64x64xf32>, %i: tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32> attributes {tilewright.operator = "conv"} {
  %r = linalg.generic {indexing_maps = [#data, #direct, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x58x58x64xf32>, tensor<3x3x64x64xf32>) outs(%i : tensor<1x56x56x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<1x56x56x64xf32>
  return %r : tensor<1x56x56x64xf32>
}
