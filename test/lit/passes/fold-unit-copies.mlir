// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fold-unit-copies)' | filecheck %s

#id2 = affine_map<(a, b) -> (a, b)>
#id3 = affine_map<(a, b, c) -> (a, b, c)>
#swap2 = affine_map<(a, b) -> (b, a)>
#swap3 = affine_map<(a, b, c) -> (b, a, c)>

// CHECK-LABEL: func.func @moved_unit
// CHECK-NEXT: tensor.empty
// CHECK-NEXT: %[[C:.+]] = tensor.collapse_shape %arg0 {{\[\[}}0, 1], [2]] : tensor<27x1x32xf32> into tensor<27x32xf32>
// CHECK-NEXT: %[[E:.+]] = tensor.expand_shape %[[C]] {{\[\[}}0, 1], [2]] output_shape [1, 27, 32]
// CHECK-NEXT: return %[[E]]
func.func @moved_unit(%w: tensor<27x1x32xf32>) -> tensor<1x27x32xf32> {
  %e = tensor.empty() : tensor<1x27x32xf32>
  %p = linalg.generic {indexing_maps = [#swap3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<27x1x32xf32>) outs(%e : tensor<1x27x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x27x32xf32>
  return %p : tensor<1x27x32xf32>
}

// CHECK-LABEL: func.func @all_units
// CHECK: tensor.collapse_shape %arg0 [] : tensor<1x1xf32> into tensor<f32>
// CHECK-NEXT: tensor.expand_shape %{{.+}} [] output_shape [1, 1, 1]
func.func @all_units(%w: tensor<1x1xf32>) -> tensor<1x1x1xf32> {
  %e = tensor.empty() : tensor<1x1x1xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, 0)>, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<1x1xf32>) outs(%e : tensor<1x1x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x1x1xf32>
  return %p : tensor<1x1x1xf32>
}

// A transpose, a broadcast, a computation and a conversion are work.
// CHECK-LABEL: func.func @work_stays
// CHECK-COUNT-4: linalg.generic
func.func @work_stays(%w: tensor<6x7xf32>, %u: tensor<1x7xf32>, %h: tensor<6x7xf16>)
    -> (tensor<7x6xf32>, tensor<6x7xf32>, tensor<6x7xf32>, tensor<6x7xf32>) {
  %e = tensor.empty() : tensor<7x6xf32>
  %f = tensor.empty() : tensor<6x7xf32>
  %a = linalg.generic {indexing_maps = [#swap2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<6x7xf32>) outs(%e : tensor<7x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<7x6xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(a, b) -> (0, b)>, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%u : tensor<1x7xf32>) outs(%f : tensor<6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<6x7xf32>
  %c = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<6x7xf32>) outs(%f : tensor<6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %n = arith.negf %in : f32
    linalg.yield %n : f32
  } -> tensor<6x7xf32>
  %d = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<6x7xf16>) outs(%f : tensor<6x7xf32>) {
  ^bb0(%in: f16, %out: f32):
    %n = arith.extf %in : f16 to f32
    linalg.yield %n : f32
  } -> tensor<6x7xf32>
  return %a, %b, %c, %d : tensor<7x6xf32>, tensor<6x7xf32>, tensor<6x7xf32>, tensor<6x7xf32>
}
