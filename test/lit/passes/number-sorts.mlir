// RUN: tilewright-opt %s --pass-pipeline='builtin.module(limit-sorts,number-sorts)' | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// Places along the lines are not read, and only five elements are written.
// CHECK-LABEL: func.func @topk(
// CHECK-SAME: %[[V:.+]]: tensor<4x64xf32>
// CHECK: %[[S:.+]]:2 = tm_tensor.topk dimension(1) ins(%[[V]] : tensor<4x64xf32>) outs(%{{.+}}, %{{.+}} : tensor<4x5xf32>, tensor<4x5xi64>) {
// CHECK-NEXT: ^bb0(%[[A:.+]]: f32, %[[B:.+]]: f32):
// CHECK-NEXT: arith.cmpf oge, %[[A]], %[[B]]
// CHECK: %[[U:.+]] = tensor.extract_slice %[[S]]#1[0, 0] [4, 3] [1, 1] : tensor<4x5xi64> to tensor<4x3xi64>
// CHECK: return %[[S]]#0, %[[U]]
func.func @topk(%v: tensor<4x64xf32>) -> (tensor<4x5xf32>, tensor<4x3xi64>) {
  %e = tensor.empty() : tensor<4x64xi64>
  %i = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x64xi64>) {
  ^bb0(%o: i64):
    %n = linalg.index 1 : index
    %c = arith.index_cast %n : index to i64
    linalg.yield %c : i64
  } -> tensor<4x64xi64>
  %s:2 = tm_tensor.sort dimension(1) outs(%v, %i : tensor<4x64xf32>, tensor<4x64xi64>) {
  ^bb0(%a: f32, %b: f32, %j: i64, %k: i64):
    %c = arith.cmpf oge, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<4x64xf32>, tensor<4x64xi64>
  %t = tensor.extract_slice %s#0[0, 0] [4, 5] [1, 1] : tensor<4x64xf32> to tensor<4x5xf32>
  %u = tensor.extract_slice %s#1[0, 0] [4, 3] [1, 1] : tensor<4x64xi64> to tensor<4x3xi64>
  return %t, %u : tensor<4x5xf32>, tensor<4x3xi64>
}

// A whole sort.
// CHECK-LABEL: func.func @whole(
// CHECK: tm_tensor.topk dimension(0) ins(%{{.+}} : tensor<4x64xf32>) outs(%{{.+}}, %{{.+}} : tensor<4x64xf32>, tensor<4x64xi32>)
func.func @whole(%v: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xi32>) {
  %e = tensor.empty() : tensor<4x64xi32>
  %i = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x64xi32>) {
  ^bb0(%o: i32):
    %n = linalg.index 0 : index
    %c = arith.index_cast %n : index to i32
    linalg.yield %c : i32
  } -> tensor<4x64xi32>
  %s:2 = tm_tensor.sort dimension(0) outs(%v, %i : tensor<4x64xf32>, tensor<4x64xi32>) {
  ^bb0(%a: f32, %b: f32, %j: i32, %k: i32):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<4x64xf32>, tensor<4x64xi32>
  return %s#0, %s#1 : tensor<4x64xf32>, tensor<4x64xi32>
}

// Not these: places along another dimension, other numbers, and an order that is not that of numbers.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: tm_tensor.sort
// CHECK-NOT: tm_tensor.topk
func.func @others(%v: tensor<4x64xf32>, %w: tensor<4x64xi64>) -> (tensor<4x64xi64>, tensor<4x64xi64>, tensor<4x64xi64>) {
  %e = tensor.empty() : tensor<4x64xi64>
  %i = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x64xi64>) {
  ^bb0(%o: i64):
    %n = linalg.index 1 : index
    %c = arith.index_cast %n : index to i64
    linalg.yield %c : i64
  } -> tensor<4x64xi64>
  %r:2 = tm_tensor.sort dimension(0) outs(%v, %i : tensor<4x64xf32>, tensor<4x64xi64>) {
  ^bb0(%a: f32, %b: f32, %j: i64, %k: i64):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<4x64xf32>, tensor<4x64xi64>
  %s:2 = tm_tensor.sort dimension(1) outs(%v, %w : tensor<4x64xf32>, tensor<4x64xi64>) {
  ^bb0(%a: f32, %b: f32, %j: i64, %k: i64):
    %c = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<4x64xf32>, tensor<4x64xi64>
  %t:2 = tm_tensor.sort dimension(1) outs(%v, %i : tensor<4x64xf32>, tensor<4x64xi64>) {
  ^bb0(%a: f32, %b: f32, %j: i64, %k: i64):
    %p = math.absf %a : f32
    %c = arith.cmpf ole, %p, %b : f32
    tm_tensor.yield %c : i1
  } -> tensor<4x64xf32>, tensor<4x64xi64>
  return %r#1, %s#1, %t#1 : tensor<4x64xi64>, tensor<4x64xi64>, tensor<4x64xi64>
}
