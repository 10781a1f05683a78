// RUN: tilewright-opt %s --pass-pipeline='builtin.module(sink-reshapes,canonicalize)' | filecheck %s

// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[COLUMNS:.+]] = affine_map<(d0, d1) -> (d1)>
#line = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#bias = affine_map<(d0, d1, d2) -> (d2)>

// The sum moves before the expansion; a full operand is reshaped back, a broadcast one stays.
// CHECK-LABEL: func.func @expansion
// CHECK: %[[PRODUCT:.+]] = linalg.generic
// CHECK: %[[FULL:.+]] = tensor.collapse_shape %arg2 {{\[\[}}0, 1], [2]]
// CHECK: %[[SUM:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[COLUMNS]], #[[ID]], #[[ID]]]
// CHECK-SAME: ins(%[[PRODUCT]], %arg1, %[[FULL]] : tensor<128x32xf32>, tensor<32xf32>, tensor<128x32xf32>)
// CHECK: %[[R:.+]] = tensor.expand_shape %[[SUM]]
// CHECK: return %[[R]]
func.func @expansion(%x: tensor<128x32xf32>, %b: tensor<32xf32>, %f: tensor<1x128x32xf32>) -> tensor<1x128x32xf32> {
  %e = tensor.empty() : tensor<128x32xf32>
  %m = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x32xf32>) outs(%e : tensor<128x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<128x32xf32>
  %v = tensor.expand_shape %m [[0, 1], [2]] output_shape [1, 128, 32] : tensor<128x32xf32> into tensor<1x128x32xf32>
  %e3 = tensor.empty() : tensor<1x128x32xf32>
  %r = linalg.generic {indexing_maps = [#id3, #bias, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %b, %f : tensor<1x128x32xf32>, tensor<32xf32>, tensor<1x128x32xf32>) outs(%e3 : tensor<1x128x32xf32>) {
  ^bb0(%in: f32, %bias: f32, %full: f32, %out: f32):
    %a = arith.addf %in, %bias : f32
    %c = arith.addf %a, %full : f32
    linalg.yield %c : f32
  } -> tensor<1x128x32xf32>
  return %r : tensor<1x128x32xf32>
}

// CHECK-LABEL: func.func @collapse
// CHECK: %[[PRODUCT:.+]] = linalg.generic
// CHECK: %[[OTHER:.+]] = tensor.expand_shape %arg1 {{\[\[}}0, 1]] output_shape [4, 32]
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[PRODUCT]], %[[OTHER]] : tensor<4x32xf32>, tensor<4x32xf32>)
// CHECK: tensor.collapse_shape %[[SUM]]
func.func @collapse(%x: tensor<4x32xf32>, %b: tensor<128xf32>) -> tensor<128xf32> {
  %e = tensor.empty() : tensor<4x32xf32>
  %m = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<4x32xf32>
  %v = tensor.collapse_shape %m [[0, 1]] : tensor<4x32xf32> into tensor<128xf32>
  %e1 = tensor.empty() : tensor<128xf32>
  %r = linalg.generic {indexing_maps = [#line, #line, #line], iterator_types = ["parallel"]}
      ins(%v, %b : tensor<128xf32>, tensor<128xf32>) outs(%e1 : tensor<128xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %a = arith.addf %in, %other : f32
    linalg.yield %a : f32
  } -> tensor<128xf32>
  return %r : tensor<128xf32>
}

// There is nothing before the reshape to fuse with.
// CHECK-LABEL: func.func @of_an_argument
// CHECK: %[[V:.+]] = tensor.expand_shape %arg0
// CHECK: linalg.generic {{.*}} ins(%[[V]] : tensor<1x128x32xf32>)
func.func @of_an_argument(%x: tensor<128x32xf32>) -> tensor<1x128x32xf32> {
  %v = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 128, 32] : tensor<128x32xf32> into tensor<1x128x32xf32>
  %e3 = tensor.empty() : tensor<1x128x32xf32>
  %r = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v : tensor<1x128x32xf32>) outs(%e3 : tensor<1x128x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<1x128x32xf32>
  return %r : tensor<1x128x32xf32>
}

// Both the sum and the return read the reshaped value, so it stays where it is.
// CHECK-LABEL: func.func @read_twice
// CHECK: %[[V:.+]] = tensor.expand_shape
// CHECK: linalg.generic {{.*}} ins(%[[V]] : tensor<1x4x32xf32>)
func.func @read_twice(%x: tensor<4x32xf32>) -> (tensor<1x4x32xf32>, tensor<1x4x32xf32>) {
  %e = tensor.empty() : tensor<4x32xf32>
  %m = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<4x32xf32>
  %v = tensor.expand_shape %m [[0, 1], [2]] output_shape [1, 4, 32] : tensor<4x32xf32> into tensor<1x4x32xf32>
  %e3 = tensor.empty() : tensor<1x4x32xf32>
  %r = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v : tensor<1x4x32xf32>) outs(%e3 : tensor<1x4x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<1x4x32xf32>
  return %v, %r : tensor<1x4x32xf32>, tensor<1x4x32xf32>
}

// A scalar has no loops that the sum could be written over.
// CHECK-LABEL: func.func @to_scalar
// CHECK: %[[V:.+]] = tensor.collapse_shape
// CHECK: linalg.generic {{.*}} ins(%[[V]] : tensor<f32>)
func.func @to_scalar(%x: tensor<1x1xf32>) -> tensor<f32> {
  %e = tensor.empty() : tensor<1x1xf32>
  %m = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1x1xf32>) outs(%e : tensor<1x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<1x1xf32>
  %v = tensor.collapse_shape %m [] : tensor<1x1xf32> into tensor<f32>
  %e0 = tensor.empty() : tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%v : tensor<f32>) outs(%e0 : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}
