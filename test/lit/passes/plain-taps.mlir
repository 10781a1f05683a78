// RUN: tilewright-opt %s --pass-pipeline='builtin.module(plain-taps)' | filecheck %s

// One tap of both: the image is read at the loops of the result, by steps of two along columns.
// CHECK-DAG: #[[POINT:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 * 2, d4)>
// One tap of rows, three of columns.
// CHECK-DAG: #[[ROW:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 + d3, d4)>
// Two rows of which one window fits in one: only as a sum may the index be short of them.
// CHECK-DAG: #[[LONGER:.+]] = affine_map<(d0, d1) -> (d0 + d1)>
// The image has one column: that loop is the result's, and stays.
// CHECK-DAG: #[[COLUMN:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>

// CHECK-LABEL: func.func @point(
// CHECK: linalg.generic {indexing_maps = [#[[POINT]],
func.func @point(%x: tensor<5x9x8xf32>, %w: tensor<1x1x8x16xf32>, %init: tensor<5x5x16xf32>) -> tensor<5x5x16xf32> {
  %c = linalg.generic {
    indexing_maps = [affine_map<(h, w, f, r, c) -> (h + r, w * 2 + r, c)>, affine_map<(h, w, f, r, c) -> (r, r, c, f)>,
                     affine_map<(h, w, f, r, c) -> (h, w, f)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%x, %w : tensor<5x9x8xf32>, tensor<1x1x8x16xf32>) outs(%init : tensor<5x5x16xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x5x16xf32>
  return %c : tensor<5x5x16xf32>
}

// CHECK-LABEL: func.func @row(
// CHECK: linalg.generic {indexing_maps = [#[[ROW]],
func.func @row(%x: tensor<5x11x8xf32>, %w: tensor<3x8x16xf32>, %init: tensor<5x9x16xf32>) -> tensor<5x9x16xf32> {
  %c = linalg.generic {
    indexing_maps = [affine_map<(h, w, f, s, c) -> (h, w + s, c)>, affine_map<(h, w, f, s, c) -> (s, c, f)>,
                     affine_map<(h, w, f, s, c) -> (h, w, f)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
  } ins(%x, %w : tensor<5x11x8xf32>, tensor<3x8x16xf32>) outs(%init : tensor<5x9x16xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x9x16xf32>
  return %c : tensor<5x9x16xf32>
}

// CHECK-LABEL: func.func @column(
// CHECK: linalg.generic {indexing_maps = [#[[COLUMN]],
func.func @column(%x: tensor<5x1xf32>, %w: tensor<1x16xf32>, %init: tensor<5x1x16xf32>) -> tensor<5x1x16xf32> {
  %c = linalg.generic {
    indexing_maps = [affine_map<(h, w, f, s) -> (h, w + s)>, affine_map<(h, w, f, s) -> (s, f)>,
                     affine_map<(h, w, f, s) -> (h, w, f)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction"]
  } ins(%x, %w : tensor<5x1xf32>, tensor<1x16xf32>) outs(%init : tensor<5x1x16xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x1x16xf32>
  return %c : tensor<5x1x16xf32>
}

// CHECK-LABEL: func.func @longer(
// CHECK: linalg.generic {indexing_maps = [#[[LONGER]],
func.func @longer(%x: tensor<2xf32>, %w: tensor<1xf32>, %init: tensor<1xf32>) -> tensor<1xf32> {
  %c = linalg.generic {
    indexing_maps = [affine_map<(h, r) -> (h + r)>, affine_map<(h, r) -> (r)>, affine_map<(h, r) -> (h)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%x, %w : tensor<2xf32>, tensor<1xf32>) outs(%init : tensor<1xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %s = arith.addf %out, %a : f32
    linalg.yield %s : f32
  } -> tensor<1xf32>
  return %c : tensor<1xf32>
}
