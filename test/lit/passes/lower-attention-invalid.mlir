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

// -----

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @unmarked(%q: memref<40x32xf32>, %k: memref<50x32xf32>, %out: memref<40x32xf32>) {
  %tq = bufferization.to_tensor %q restrict : memref<40x32xf32> to tensor<40x32xf32>
  %tk = bufferization.to_tensor %k restrict : memref<50x32xf32> to tensor<50x32xf32>
  // expected-error @+1 {{dispatch @unmarked: illegal schedule: reductions say `nothing`: attention has loops of its own; say its cut}}
  %r = "tilewright.attention"(%tq, %tk, %tk) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<40x32xf32>, memref<40x32xf32>) -> ()
  return
}

// -----

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @more_queries(%q: memref<40x32xf32>, %k: memref<50x32xf32>, %out: memref<40x32xf32>) {
  %tq = bufferization.to_tensor %q restrict : memref<40x32xf32> to tensor<40x32xf32>
  %tk = bufferization.to_tensor %k restrict : memref<50x32xf32> to tensor<50x32xf32>
  // expected-error @+1 {{dispatch @more_queries: illegal schedule: reductions say `attention 41x3x50x28`: queries is 41, its loop has 40; use at most that}}
  %r = "tilewright.attention"(%tq, %tk, %tk) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], tilewright.loops = {attention = [41, 3, 50, 28]}, scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<40x32xf32>, memref<40x32xf32>) -> ()
  return
}

// -----

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @wide(%q: memref<40x32xf32>, %k: memref<50x32xf32>, %out: memref<40x32xf32>) {
  %tq = bufferization.to_tensor %q restrict : memref<40x32xf32> to tensor<40x32xf32>
  %tk = bufferization.to_tensor %k restrict : memref<50x32xf32> to tensor<50x32xf32>
  // expected-error @+1 {{vectors is 2, 16 queries fill 1; use at most that}}
  %r = "tilewright.attention"(%tq, %tk, %tk) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], tilewright.loops = {attention = [16, 2, 50, 28]}, scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<40x32xf32>, memref<40x32xf32>) -> ()
  return
}

// -----

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @one_left(%q: memref<40x32xf32>, %k: memref<50x32xf32>, %out: memref<40x32xf32>) {
  %tq = bufferization.to_tensor %q restrict : memref<40x32xf32> to tensor<40x32xf32>
  %tk = bufferization.to_tensor %k restrict : memref<50x32xf32> to tensor<50x32xf32>
  // expected-error @+1 {{vectors is 2, which leaves one that joins them; use 3}}
  %r = "tilewright.attention"(%tq, %tk, %tk) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], tilewright.loops = {attention = [40, 2, 50, 28]}, scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<40x32xf32>, memref<40x32xf32>) -> ()
  return
}

// -----

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

func.func @idle(%q: memref<40x32xf32>, %k: memref<50x32xf32>, %out: memref<40x32xf32>) {
  %tq = bufferization.to_tensor %q restrict : memref<40x32xf32> to tensor<40x32xf32>
  %tk = bufferization.to_tensor %k restrict : memref<50x32xf32> to tensor<50x32xf32>
  // expected-error @+1 {{registers is 32, whose loops are those of 28; use that}}
  %r = "tilewright.attention"(%tq, %tk, %tk) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], tilewright.loops = {attention = [40, 3, 50, 32]}, scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<40x32xf32>, memref<40x32xf32>) -> ()
  return
}
