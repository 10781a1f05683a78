// RUN: tilewright-opt %s --pass-pipeline='builtin.module(collapse-loops)' --split-input-file | filecheck %s

// CHECK-DAG: #[[IN:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1) -> (d0)>
// CHECK: func.func @main
// CHECK: %[[C:.+]] = tensor.collapse_shape %arg0 {{\[\[}}0], [1, 2]] : tensor<64x56x56xf32> into tensor<64x3136xf32>
// CHECK: call @sum(%[[C]]) : (tensor<64x3136xf32>) -> tensor<64xf32>
// CHECK: func.func private @sum(%arg0: tensor<64x3136xf32>) -> tensor<64xf32>
// CHECK: linalg.fill {{.*}}outs(%{{.+}} : tensor<64xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[IN]], #[[OUT]]], iterator_types = ["parallel", "reduction"]}
func.func @main(%x: tensor<64x56x56xf32>) -> tensor<64xf32> {
  %s = call @sum(%x) : (tensor<64x56x56xf32>) -> tensor<64xf32>
  return %s : tensor<64xf32>
}
func.func private @sum(%x: tensor<64x56x56xf32>) -> tensor<64xf32> attributes {tilewright.operator = "reduction"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a)>],
                       iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%x : tensor<64x56x56xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.addf %in, %out : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  return %s : tensor<64xf32>
}

// -----

// A bias per channel keeps the channels apart from rows and columns, which merge; the caller gets its shape back.
// CHECK: func.func @main
// CHECK: %[[C:.+]] = tensor.collapse_shape %arg0 {{\[\[}}0], [1, 2]]
// CHECK: %[[R:.+]] = call @bias(%[[C]], %arg1) : (tensor<64x49xf32>, tensor<64xf32>) -> tensor<64x49xf32>
// CHECK: %[[E:.+]] = tensor.expand_shape %[[R]] {{\[\[}}0], [1, 2]] output_shape [64, 7, 7]
// CHECK: return %[[E]]
// CHECK: func.func private @bias
// CHECK: linalg.index 0
// CHECK: -> tensor<64x49xf32>
func.func @main(%x: tensor<64x7x7xf32>, %b: tensor<64xf32>) -> tensor<64x7x7xf32> {
  %s = call @bias(%x, %b) : (tensor<64x7x7xf32>, tensor<64xf32>) -> tensor<64x7x7xf32>
  return %s : tensor<64x7x7xf32>
}
func.func private @bias(%x: tensor<64x7x7xf32>, %b: tensor<64xf32>) -> tensor<64x7x7xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<64x7x7xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a)>, affine_map<(a, b, c) -> (a, b, c)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %b : tensor<64x7x7xf32>, tensor<64xf32>) outs(%e : tensor<64x7x7xf32>) {
  ^bb0(%in: f32, %bias: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %k = arith.sitofp %j : i32 to f32
    %q = arith.addf %in, %bias : f32
    %r = arith.addf %q, %k : f32
    linalg.yield %r : f32
  } -> tensor<64x7x7xf32>
  return %s : tensor<64x7x7xf32>
}

// -----

// Nothing merges: a transposed output, an index of the middle loop, loops of different kinds.
// CHECK-NOT: tensor.collapse_shape
// CHECK: call @transposed
// CHECK-NOT: tensor.collapse_shape
// CHECK: return
func.func @main(%x: tensor<6x7x8xf32>, %y: tensor<6x8xf32>) -> (tensor<6x8x7xf32>, tensor<6x7x8xf32>, tensor<6xf32>) {
  %a = call @transposed(%x) : (tensor<6x7x8xf32>) -> tensor<6x8x7xf32>
  %b = call @indexed(%x) : (tensor<6x7x8xf32>) -> tensor<6x7x8xf32>
  %c = call @rows(%y) : (tensor<6x8xf32>) -> tensor<6xf32>
  return %a, %b, %c : tensor<6x8x7xf32>, tensor<6x7x8xf32>, tensor<6xf32>
}
func.func private @transposed(%x: tensor<6x7x8xf32>) -> tensor<6x8x7xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<6x8x7xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, c, b)>, affine_map<(a, b, c) -> (a, b, c)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<6x7x8xf32>) outs(%e : tensor<6x8x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x8x7xf32>
  return %s : tensor<6x8x7xf32>
}
func.func private @indexed(%x: tensor<6x7x8xf32>) -> tensor<6x7x8xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<6x7x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<6x7x8xf32>) outs(%e : tensor<6x7x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %k = arith.sitofp %j : i32 to f32
    %r = arith.addf %in, %k : f32
    linalg.yield %r : f32
  } -> tensor<6x7x8xf32>
  return %s : tensor<6x7x8xf32>
}
func.func private @rows(%x: tensor<6x8xf32>) -> tensor<6xf32> attributes {tilewright.operator = "reduction"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<6x8xf32>) outs(%z : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.addf %in, %out : f32
    linalg.yield %r : f32
  } -> tensor<6xf32>
  return %s : tensor<6xf32>
}

// -----

// The pixels of a pointwise convolution are rows of one product; its weight lies in blocks of 16 columns, by which nothing merges.
// CHECK-DAG: #[[ROWS:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[BLOCKS:.+]] = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2, d1 mod 16)>
// CHECK-DAG: #[[RESULT:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK: func.func private @pointwise(%arg0: tensor<98x24xf32>, %arg1: tensor<2x24x16xf32>) -> tensor<98x32xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ROWS]], #[[BLOCKS]], #[[RESULT]]], iterator_types = ["parallel", "parallel", "reduction"]}
func.func @main(%x: tensor<2x7x7x24xf32>, %w: tensor<2x24x16xf32>) -> tensor<2x7x7x32xf32> {
  %y = call @pointwise(%x, %w) : (tensor<2x7x7x24xf32>, tensor<2x24x16xf32>) -> tensor<2x7x7x32xf32>
  return %y : tensor<2x7x7x32xf32>
}
func.func private @pointwise(%x: tensor<2x7x7x24xf32>, %w: tensor<2x24x16xf32>) -> tensor<2x7x7x32xf32> attributes {tilewright.operator = "matmul"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x7x7x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x7x7x32xf32>) -> tensor<2x7x7x32xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(n, y, x, f, c) -> (n, y, x, c)>, affine_map<(n, y, x, f, c) -> (f floordiv 16, c, f mod 16)>,
                                        affine_map<(n, y, x, f, c) -> (n, y, x, f)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<2x7x7x24xf32>, tensor<2x24x16xf32>) outs(%f : tensor<2x7x7x32xf32>) {
  ^bb0(%in: f32, %weight: f32, %out: f32):
    %p = arith.mulf %in, %weight : f32
    %r = arith.addf %out, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x7x7x32xf32>
  return %s : tensor<2x7x7x32xf32>
}

// -----

// A window of several loops in one dimension merges nothing, and keeps its map where tensors beside it merge.
// CHECK: affine_map<(d0, d1, d2) -> (d0, d1 + d2)>
// CHECK: func.func private @window(%arg0: tensor<6x10xf32>, %arg1: tensor<3xf32>, %arg2: tensor<14xf32>)
func.func @main(%x: tensor<6x10xf32>, %w: tensor<3xf32>, %z: tensor<2x7xf32>) -> (tensor<6x8xf32>, tensor<2x7xf32>) {
  %s:2 = call @window(%x, %w, %z) : (tensor<6x10xf32>, tensor<3xf32>, tensor<2x7xf32>) -> (tensor<6x8xf32>, tensor<2x7xf32>)
  return %s#0, %s#1 : tensor<6x8xf32>, tensor<2x7xf32>
}
func.func private @window(%x: tensor<6x10xf32>, %w: tensor<3xf32>, %z: tensor<2x7xf32>) -> (tensor<6x8xf32>, tensor<2x7xf32>) attributes {tilewright.operator = "reduction"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x8xf32>) -> tensor<6x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b, k) -> (a, b + k)>, affine_map<(a, b, k) -> (k)>, affine_map<(a, b, k) -> (a, b)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<6x10xf32>, tensor<3xf32>) outs(%f : tensor<6x8xf32>) {
  ^bb0(%in: f32, %unused: f32, %out: f32):
    %r = arith.addf %in, %out : f32
    linalg.yield %r : f32
  } -> tensor<6x8xf32>
  %t = tensor.empty() : tensor<2x7xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%z : tensor<2x7xf32>) outs(%t : tensor<2x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.negf %in : f32
    linalg.yield %r : f32
  } -> tensor<2x7xf32>
  return %s, %n : tensor<6x8xf32>, tensor<2x7xf32>
}
