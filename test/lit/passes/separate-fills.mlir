// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(separate-fills))' | filecheck %s

// Two sums of one shape: the second has a fill of its own, in front of it.
// CHECK-LABEL: func.func @twice(
// CHECK: %[[ZERO:.+]] = arith.constant 0.0
// CHECK: %[[FIRST:.+]] = linalg.fill ins(%[[ZERO]] : f32)
// CHECK: %[[S:.+]] = linalg.generic {{.*}} outs(%[[FIRST]] : tensor<4xf32>)
// CHECK: %[[U:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[S]]
// CHECK: %[[OWN:.+]] = tensor.empty() : tensor<4xf32>
// CHECK-NEXT: %[[SECOND:.+]] = linalg.fill ins(%[[ZERO]] : f32) outs(%[[OWN]]
// CHECK-NEXT: linalg.generic {{.*}} ins(%[[U]] : tensor<4x8xf32>) outs(%[[SECOND]] : tensor<4xf32>)
#rows = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @twice(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = tensor.empty() : tensor<4x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.addf %in, %out : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %u = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%f : tensor<4x8xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %r = arith.subf %in, %in_0 : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %t = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%u : tensor<4x8xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.addf %in, %out : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %t : tensor<4xf32>
}

// A filled tensor that something reads too is left alone, and so is the fill of one reduction.
// CHECK-LABEL: func.func @read(
// CHECK: linalg.fill
// CHECK-NOT: linalg.fill
// CHECK: return
func.func @read(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf32>) outs(%z : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.addf %in, %out : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %s, %z : tensor<4xf32>, tensor<4xf32>
}
