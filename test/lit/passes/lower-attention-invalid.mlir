// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-attention))' --split-input-file --verify-diagnostics

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @tensors(%q: tensor<40x32xf32>, %k: tensor<50x32xf32>) -> tensor<40x32xf32> {
  // expected-error @+1 {{`lower-attention`: the result is not written to a buffer; run `form-kernels` first}}
  %r = "tilewright.attention"(%q, %k, %k) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  return %r : tensor<40x32xf32>
}

// -----

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @outside(%q: tensor<40x32xf32>, %k: tensor<50x32xf32>) -> tensor<40x32xf32> {
  // expected-error @+1 {{`tilewright.attention`: map 1 reaches 50 along a dimension of extent 50}}
  %r = "tilewright.attention"(%q, %k, %k) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 51, 16, 16], scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  return %r : tensor<40x32xf32>
}
