// RUN: tilewright-opt %s --pass-pipeline='builtin.module(merge-reductions)' | filecheck %s

#abc = affine_map<(a, b, c) -> (a, b, c)>
#ab = affine_map<(a, b, c) -> (a, b)>
#keep = affine_map<(a, b, c) -> (a, b, 0)>
#id2 = affine_map<(a, b) -> (a, b)>
#keep2 = affine_map<(a, b) -> (a, b, 0)>
#rows = affine_map<(a, b) -> (a)>

// CHECK-DAG: #[[IN:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2) -> (d0)>
// CHECK-LABEL: func.func @maxima
// CHECK: linalg.generic {indexing_maps = [#[[IN]], #[[OUT]]], iterator_types = ["parallel", "reduction", "reduction"]}
// CHECK-SAME: ins(%arg0 : tensor<6x7x8xf32>)
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @maxima(%x: tensor<6x7x8xf32>) -> tensor<6xf32> {
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<6x7x1xf32>
  %z = linalg.fill ins(%low : f32) outs(%e : tensor<6x7x1xf32>) -> tensor<6x7x1xf32>
  %r = linalg.generic {indexing_maps = [#abc, #keep], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<6x7x8xf32>) outs(%z : tensor<6x7x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6x7x1xf32>
  %e2 = tensor.empty() : tensor<6xf32>
  %z2 = linalg.fill ins(%low : f32) outs(%e2 : tensor<6xf32>) -> tensor<6xf32>
  %s = linalg.generic {indexing_maps = [#keep2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%r : tensor<6x7x1xf32>) outs(%z2 : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6xf32>
  return %s : tensor<6xf32>
}

// Sums round in an order, maxima of minima are neither, and a first result with another reader is needed itself.
// CHECK-LABEL: func.func @others_stay
// CHECK-COUNT-6: linalg.generic
func.func @others_stay(%x: tensor<6x7x8xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6x7xf32>) {
  %low = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x7xf32>
  %z = linalg.fill ins(%low : f32) outs(%e : tensor<6x7xf32>) -> tensor<6x7xf32>
  %e2 = tensor.empty() : tensor<6xf32>
  %z2 = linalg.fill ins(%low : f32) outs(%e2 : tensor<6xf32>) -> tensor<6xf32>
  %sum = linalg.generic {indexing_maps = [#abc, #ab], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<6x7x8xf32>) outs(%z : tensor<6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.addf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6x7xf32>
  %sums = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%sum : tensor<6x7xf32>) outs(%z2 : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.addf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6xf32>
  %min = linalg.generic {indexing_maps = [#abc, #ab], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<6x7x8xf32>) outs(%z : tensor<6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.minimumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6x7xf32>
  %mixed = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%min : tensor<6x7xf32>) outs(%z2 : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6xf32>
  %max = linalg.generic {indexing_maps = [#abc, #ab], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<6x7x8xf32>) outs(%z : tensor<6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6x7xf32>
  %maxima = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%max : tensor<6x7xf32>) outs(%z2 : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<6xf32>
  return %sums, %mixed, %maxima, %max : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6x7xf32>
}
