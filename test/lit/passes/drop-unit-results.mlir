// RUN: tilewright-opt %s --pass-pipeline='builtin.module(drop-unit-results)' | filecheck %s

// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROWS:.+]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[NONE:.+]] = affine_map<(d0) -> ()>
// CHECK-DAG: #[[PICK:.+]] = affine_map<(d0) -> (d0, 2)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#keep = affine_map<(d0, d1) -> (d0, 0)>
#scalar = affine_map<(d0) -> (0)>
#line = affine_map<(d0) -> (d0)>
#pick = affine_map<(d0) -> (d0, 2)>

// CHECK-LABEL: func.func @result
// CHECK: %[[START:.+]] = tensor.collapse_shape %arg1 {{\[\[}}0, 1]] : tensor<128x1xf32> into tensor<128xf32>
// CHECK: %[[SUM:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[ROWS]]]
// CHECK-SAME: outs(%[[START]] : tensor<128xf32>)
// CHECK: %[[BACK:.+]] = tensor.expand_shape %[[SUM]] {{\[\[}}0, 1]]
// CHECK: return %[[BACK]]
func.func @result(%x: tensor<128x32xf32>, %e: tensor<128x1xf32>) -> tensor<128x1xf32> {
  %s = linalg.generic {indexing_maps = [#id, #keep], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<128x32xf32>) outs(%e : tensor<128x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %in, %out : f32
    linalg.yield %a : f32
  } -> tensor<128x1xf32>
  return %s : tensor<128x1xf32>
}

// CHECK-LABEL: func.func @operand
// CHECK: %[[LINE:.+]] = tensor.collapse_shape %arg0
// CHECK: linalg.generic {indexing_maps = [#[[ROWS]], #[[ID]]]
// CHECK-SAME: ins(%[[LINE]] : tensor<128xf32>)
func.func @operand(%x: tensor<128x1xf32>, %e: tensor<128x32xf32>) -> tensor<128x32xf32> {
  %s = linalg.generic {indexing_maps = [#keep, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x1xf32>) outs(%e : tensor<128x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<128x32xf32>
  return %s : tensor<128x32xf32>
}

// CHECK-LABEL: func.func @every_dimension
// CHECK: %[[POINT:.+]] = tensor.collapse_shape %arg0 [] : tensor<1xf32> into tensor<f32>
// CHECK: linalg.generic {indexing_maps = [#[[NONE]]
func.func @every_dimension(%x: tensor<1xf32>, %e: tensor<8xf32>) -> tensor<8xf32> {
  %s = linalg.generic {indexing_maps = [#scalar, #line], iterator_types = ["parallel"]}
      ins(%x : tensor<1xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// Column 2 of 4 is no reshape away.
// CHECK-LABEL: func.func @one_of_many
// CHECK-NOT: tensor.collapse_shape
// CHECK: linalg.generic {indexing_maps = [#[[PICK]]
func.func @one_of_many(%x: tensor<8x4xf32>, %e: tensor<8xf32>) -> tensor<8xf32> {
  %s = linalg.generic {indexing_maps = [#pick, #line], iterator_types = ["parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<8xf32>
  return %s : tensor<8xf32>
}
