// RUN: tilewright-opt %s --pass-pipeline='builtin.module(check-indices)' --split-input-file | filecheck %s

// A gather's place is asserted and bounded; torch-mlir's own two checks of it go.
// CHECK-LABEL: func.func @gather
// CHECK: %[[PLACE:.+]] = arith.index_cast %{{.+}} : i64 to index
// CHECK-NOT: dim size
// CHECK-NOT: equal to 0
// CHECK: %[[EXTENT:.+]] = arith.constant 8 : i64
// CHECK: %[[OK:.+]] = arith.cmpi ult, %{{.+}}, %[[EXTENT]] : i64
// CHECK: cf.assert %[[OK]], "index out of range: expected 0 to 7, as the dimension has 8 elements"
// CHECK: %[[LAST:.+]] = arith.constant 7 : index
// CHECK: %[[BOUNDED:.+]] = arith.minui %[[PLACE]], %[[LAST]] : index
// CHECK: tensor.extract %{{.+}}[%[[BOUNDED]], %{{.+}}] : tensor<8x3xf32>
func.func @gather(%x: tensor<8x3xf32>, %i: tensor<2xi64>, %out: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %c8 = arith.constant 8 : index
  %c0 = arith.constant 0 : i64
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<2xi64>) outs(%out : tensor<2x3xf32>) {
  ^bb0(%in: i64, %old: f32):
    %place = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %below = arith.cmpi slt, %place, %c8 : index
    cf.assert %below, "index must be smaller than dim size"
    %above = arith.cmpi sge, %in, %c0 : i64
    cf.assert %above, "index must be larger or equal to 0"
    %v = tensor.extract %x[%place, %column] : tensor<8x3xf32>
    linalg.yield %v : f32
  } -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// -----

// Places that follow from loop counters are inside by construction.
// CHECK-LABEL: func.func @counted
// CHECK-NOT: cf.assert
// CHECK-NOT: arith.minui
// CHECK: return
func.func @counted(%x: tensor<8xf32>, %out: tensor<16xf32>) -> tensor<16xf32> {
  %c8 = arith.constant 8 : index
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%out : tensor<16xf32>) {
  ^bb0(%old: f32):
    %n = linalg.index 0 : index
    %place = arith.remsi %n, %c8 : index
    %v = tensor.extract %x[%place] : tensor<8xf32>
    linalg.yield %v : f32
  } -> tensor<16xf32>
  return %r : tensor<16xf32>
}

// -----

// What an extracted index points at is checked as well, and other assertions stay.
// CHECK-LABEL: func.func @of_extracted
// CHECK: cf.assert %{{.+}}, "mine"
// CHECK: tensor.extract %arg1[%{{.+}}] : tensor<16xi64>
// CHECK: cf.assert %{{.+}}, "index out of range: expected 0 to 7, as the dimension has 8 elements"
// CHECK: tensor.extract %arg0
func.func @of_extracted(%x: tensor<8xf32>, %i: tensor<16xi64>, %ok: i1, %out: tensor<16xf32>) -> tensor<16xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%out : tensor<16xf32>) {
  ^bb0(%old: f32):
    cf.assert %ok, "mine"
    %n = linalg.index 0 : index
    %number = tensor.extract %i[%n] : tensor<16xi64>
    %place = arith.index_cast %number : i64 to index
    %v = tensor.extract %x[%place] : tensor<8xf32>
    linalg.yield %v : f32
  } -> tensor<16xf32>
  return %r : tensor<16xf32>
}

// -----

// A scatter reads indices that were checked, each against the dimension that its column counts.
// CHECK-LABEL: func.func @scatter
// CHECK: %[[CHECKED:.+]] = linalg.generic {{.*}} ins(%arg1 : tensor<4x2xi64>)
// CHECK: linalg.index 1
// CHECK: arith.cmpi ult
// CHECK: cf.assert %{{.+}}, "index out of range: expected 0 to 4, as the dimension has 5 elements"
// CHECK: cf.assert %{{.+}}, "index out of range: expected 0 to 7, as the dimension has 8 elements"
// CHECK: tm_tensor.scatter {{.*}} ins(%arg0, %[[CHECKED]] : tensor<4xf32>, tensor<4x2xi32>)
func.func @scatter(%u: tensor<4xf32>, %i: tensor<4x2xi64>, %x: tensor<8x5xf32>) -> tensor<8x5xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 1, 0>} unique_indices(false)
      ins(%u, %i : tensor<4xf32>, tensor<4x2xi64>) outs(%x : tensor<8x5xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<8x5xf32>
  return %r : tensor<8x5xf32>
}

// -----

// Columns of equal extents need one comparison.
// CHECK-LABEL: func.func @scatter_in_a_square
// CHECK-NOT: linalg.index
// CHECK: cf.assert
// CHECK-NOT: cf.assert
// CHECK: tm_tensor.scatter
func.func @scatter_in_a_square(%u: tensor<4xf32>, %i: tensor<4x2xi32>, %x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false)
      ins(%u, %i : tensor<4xf32>, tensor<4x2xi32>) outs(%x : tensor<8x8xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// -----

// Numbers of several lines count from where their line begins.
// CHECK-LABEL: func.func @scatter_into_lines
// CHECK: arith.minui %{{.+}}, %{{.+}}
// CHECK: cf.assert %{{.+}}, "index out of range: expected 0 to 4, as the dimension has 5 elements"
// CHECK: tm_tensor.scatter
func.func @scatter_into_lines(%u: tensor<24xf32>, %i: tensor<24x1xi64>, %x: tensor<40xf32>) -> tensor<40xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>, tilewright.lines = 8 : i64} unique_indices(false)
      ins(%u, %i : tensor<24xf32>, tensor<24x1xi64>) outs(%x : tensor<40xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<40xf32>
  return %r : tensor<40xf32>
}

// -----

// Numbers that are inside by what computes them are only made shorter.
// CHECK-LABEL: func.func @scatter_of_bits
// CHECK-NOT: cf.assert
// CHECK: arith.trunci %{{.+}} : i64 to i32
// CHECK: tm_tensor.scatter {{.*}} tensor<24x1xi32>
func.func @scatter_of_bits(%u: tensor<24xf32>, %i: tensor<24x1xi64>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %three = arith.constant 3 : i64
  %e = tensor.empty() : tensor<24x1xi64>
  %low = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<24x1xi64>) outs(%e : tensor<24x1xi64>) {
  ^bb0(%n: i64, %o: i64):
    %m = arith.andi %n, %three : i64
    linalg.yield %m : i64
  } -> tensor<24x1xi64>
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%u, %low : tensor<24xf32>, tensor<24x1xi64>) outs(%x : tensor<8xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// What is brought inside by what computes it needs no check, and is not counted from the end.
// CHECK-LABEL: func.func @clamped
// CHECK-NOT: cf.assert
// CHECK-NOT: arith.minui
// CHECK: ^bb0(%[[ROW:.+]]: i64, %[[COLUMN:.+]]: i64, %{{.+}}: f32):
// CHECK: %[[R:.+]] = arith.index_cast %[[ROW]] : i64 to index
// CHECK: %[[C:.+]] = arith.index_cast %[[COLUMN]] : i64 to index
// CHECK: tensor.extract %{{.+}}[%[[R]], %[[C]]] : tensor<3x8xf32>
#id = affine_map<(d0) -> (d0)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#both = affine_map<(d0, d1) -> (d0, d1)>
func.func @clamped(%x: tensor<3x8xf32>, %i: tensor<5xi64>, %out: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %c0 = arith.constant 0 : i64
  %c7 = arith.constant 7 : i64
  %c3 = arith.constant 3 : i64
  %c8 = arith.constant 8 : i64
  %e3 = tensor.empty() : tensor<3xi64>
  %e5 = tensor.empty() : tensor<5xi64>
  %rows = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e3 : tensor<3xi64>) {
  ^bb0(%old: i64):
    %n = linalg.index 0 : index
    %v = arith.index_cast %n : index to i64
    linalg.yield %v : i64
  } -> tensor<3xi64>
  %columns = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%i : tensor<5xi64>) outs(%e5 : tensor<5xi64>) {
  ^bb0(%in: i64, %old: i64):
    %a = arith.maxsi %in, %c0 : i64
    %b = arith.minsi %a, %c7 : i64
    linalg.yield %b : i64
  } -> tensor<5xi64>
  %r = linalg.generic {indexing_maps = [#row, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%rows, %columns : tensor<3xi64>, tensor<5xi64>) outs(%out : tensor<3x5xf32>) {
  ^bb0(%row: i64, %column: i64, %old: f32):
    %isBehindRow = arith.cmpi slt, %row, %c0 : i64
    %otherRow = arith.addi %row, %c3 : i64
    %rowFound = arith.select %isBehindRow, %otherRow, %row : i64
    %isBehind = arith.cmpi slt, %column, %c0 : i64
    %other = arith.addi %column, %c8 : i64
    %columnFound = arith.select %isBehind, %other, %column : i64
    %a = arith.index_cast %rowFound : i64 to index
    %b = arith.index_cast %columnFound : i64 to index
    %v = tensor.extract %x[%a, %b] : tensor<3x8xf32>
    linalg.yield %v : f32
  } -> tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}

// -----

// One more than there are is not inside.
// CHECK-LABEL: func.func @clamped_too_high
// CHECK: cf.assert %{{.+}}, "index out of range: expected 0 to 7, as the dimension has 8 elements"
// CHECK: arith.minui
func.func @clamped_too_high(%x: tensor<8xf32>, %i: tensor<5xi64>, %out: tensor<5xf32>) -> tensor<5xf32> {
  %c0 = arith.constant 0 : i64
  %c8 = arith.constant 8 : i64
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%i : tensor<5xi64>) outs(%out : tensor<5xf32>) {
  ^bb0(%in: i64, %old: f32):
    %low = arith.maxsi %in, %c0 : i64
    %high = arith.minsi %low, %c8 : i64
    %place = arith.index_cast %high : i64 to index
    %v = tensor.extract %x[%place] : tensor<8xf32>
    linalg.yield %v : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>
}
