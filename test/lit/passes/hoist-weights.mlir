// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(hoist-weights)' | filecheck %s

// CHECK: func.func @main(%arg0: tensor<4x8xf32> {tilewright.name = "w", tilewright.role = "weight"},
// CHECK-SAME: %arg1: tensor<2x8xf32> {tilewright.name = "x", tilewright.role = "input"},
// CHECK-SAME: %arg2: tensor<8x4xf32> {tilewright.index = 0 : i64, tilewright.name = "packed0", tilewright.role = "packed"})
// CHECK-NOT: linalg.transpose
// CHECK: linalg.fill
// CHECK: linalg.matmul ins(%arg1, %arg2
// CHECK: func.func @prepack(%arg0: tensor<4x8xf32> {tilewright.name = "w", tilewright.role = "weight"}) -> tensor<8x4xf32> {
// CHECK: %[[T:.+]] = linalg.transpose ins(%arg0
// CHECK-NEXT: return %[[T]]
func.func @main(%w: tensor<4x8xf32> {tilewright.role = "weight", tilewright.name = "w"},
                %x: tensor<2x8xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f32
  %te = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%w : tensor<4x8xf32>) outs(%te : tensor<8x4xf32>) permutation = [1, 0]
  %e = tensor.empty() : tensor<2x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = linalg.matmul ins(%x, %t : tensor<2x8xf32>, tensor<8x4xf32>) outs(%z : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// -----

// Reshapes, fills and broadcasts that grow stay; the value before them crosses.
// CHECK: func.func @main(
// CHECK-SAME: %arg2: tensor<8xf32> {tilewright.index = 0
// CHECK: tensor.expand_shape %arg2
// CHECK: linalg.broadcast
// CHECK: func.func @prepack
// CHECK: math.sqrt
// CHECK-NOT: linalg.broadcast
// CHECK-NOT: tensor.expand_shape
// CHECK: return
#id = affine_map<(d0) -> (d0)>
func.func @main(%w: tensor<8xf32> {tilewright.role = "weight", tilewright.name = "w"},
                %x: tensor<16x8xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<16x8xf32> {
  %se = tensor.empty() : tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%w : tensor<8xf32>) outs(%se : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %q = math.sqrt %in : f32
    linalg.yield %q : f32
  } -> tensor<8xf32>
  %r = tensor.expand_shape %s [[0, 1]] output_shape [1, 8] : tensor<8xf32> into tensor<1x8xf32>
  %f = tensor.collapse_shape %r [[0, 1]] : tensor<1x8xf32> into tensor<8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %b = linalg.broadcast ins(%f : tensor<8xf32>) outs(%e : tensor<16x8xf32>) dimensions = [0]
  %y = linalg.add ins(%x, %b : tensor<16x8xf32>, tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %y : tensor<16x8xf32>
}

// -----

// Weights used as they are leave nothing to prepare; a check on weights stays where it can fail.
// CHECK: func.func @main(
// CHECK: cf.assert
// CHECK: linalg.add
// CHECK-NOT: func.func @prepack
func.func @main(%w: tensor<1xf32> {tilewright.role = "weight", tilewright.name = "w"},
                %x: tensor<1xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<1xf32> {
  %i = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %v = tensor.extract %w[%i] : tensor<1xf32>
  %ok = arith.cmpf ogt, %v, %zero : f32
  cf.assert %ok, "the weight must be positive"
  %e = tensor.empty() : tensor<1xf32>
  %y = linalg.add ins(%x, %w : tensor<1xf32>, tensor<1xf32>) outs(%e : tensor<1xf32>) -> tensor<1xf32>
  return %y : tensor<1xf32>
}

// -----

// An assert in a body that reads weights only would fail at load instead of at the call: it stays.
// CHECK: func.func @main(
// CHECK: cf.assert
// CHECK-NOT: func.func @prepack
#id = affine_map<(d0) -> (d0)>
func.func @main(%w: tensor<8xi64> {tilewright.role = "weight", tilewright.name = "w"}) -> tensor<8xi64> {
  %zero = arith.constant 0 : i64
  %e = tensor.empty() : tensor<8xi64>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%w : tensor<8xi64>) outs(%e : tensor<8xi64>) {
  ^bb0(%in: i64, %out: i64):
    %ok = arith.cmpi sge, %in, %zero : i64
    cf.assert %ok, "index must be larger or equal to 0"
    linalg.yield %in : i64
  } -> tensor<8xi64>
  return %y : tensor<8xi64>
}

// -----

// Constants alone: cheap index arithmetic stays, elementary functions are done once.
// CHECK: func.func @main(
// CHECK-SAME: %arg1: tensor<8xf32> {tilewright.index = 0
// CHECK: %[[MASK:.+]] = linalg.generic
// CHECK: arith.cmpi
// CHECK: linalg.select ins(%[[MASK]], %arg0, %arg1
// CHECK: func.func @prepack() -> tensor<8xf32>
// CHECK: math.sin
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<8xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<8xf32> {
  %three = arith.constant 3 : index
  %e1 = tensor.empty() : tensor<8xi1>
  %mask = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e1 : tensor<8xi1>) {
  ^bb0(%out: i1):
    %i = linalg.index 0 : index
    %c = arith.cmpi ult, %i, %three : index
    linalg.yield %c : i1
  } -> tensor<8xi1>
  %e = tensor.empty() : tensor<8xf32>
  %table = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<8xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %f = arith.sitofp %j : i32 to f32
    %s = math.sin %f : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  %y = linalg.select ins(%mask, %x, %table : tensor<8xi1>, tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// A second run extends @prepack: what was packed is computed from inside it, and unread results go.
// CHECK: func.func @main(
// CHECK-SAME: %arg2: tensor<8x4xf32> {tilewright.index = 0 : i64, tilewright.name = "packed0"
// CHECK-NOT: %arg3
// CHECK: return %arg1, %arg2
// CHECK: func.func @prepack
// CHECK: %[[N:.+]] = linalg.negf ins(%arg0
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[N]]
// CHECK: return %[[T]] : tensor<8x4xf32>
func.func @main(%w: tensor<4x8xf32> {tilewright.role = "weight", tilewright.name = "w"},
                %x: tensor<2x8xf32> {tilewright.role = "input", tilewright.name = "x"},
                %p: tensor<4x8xf32> {tilewright.role = "packed", tilewright.name = "packed0", tilewright.index = 0 : i64})
    -> (tensor<2x8xf32>, tensor<8x4xf32>) {
  %te = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%p : tensor<4x8xf32>) outs(%te : tensor<8x4xf32>) permutation = [1, 0]
  return %x, %t : tensor<2x8xf32>, tensor<8x4xf32>
}
func.func @prepack(%w: tensor<4x8xf32> {tilewright.role = "weight", tilewright.name = "w"}) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %n = linalg.negf ins(%w : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %n : tensor<4x8xf32>
}

// -----

// Positions of an interpolation: several operations on few elements are done once, as their reader has many.
// CHECK: func.func @main(
// CHECK-SAME: %arg1: tensor<8xi64> {tilewright.index = 0
// CHECK-NOT: arith.fptosi
// CHECK: func.func @prepack() -> tensor<8xi64>
// CHECK: arith.fptosi
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<8xi64> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<8xi64> {
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<8xi64>
  %at = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<8xi64>) {
  ^bb0(%out: i64):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i64
    %f = arith.sitofp %j : i64 to f32
    %s = arith.mulf %f, %half : f32
    %n = arith.fptosi %s : f32 to i64
    linalg.yield %n : i64
  } -> tensor<8xi64>
  %y = linalg.add ins(%x, %at : tensor<8xi64>, tensor<8xi64>) outs(%e : tensor<8xi64>) -> tensor<8xi64>
  return %y : tensor<8xi64>
}

// -----

// Insertions in place stay together: what a weight fills of a tensor, calls fill with the rest of it.
// CHECK: func.func @main(
// CHECK: %[[E:.+]] = tensor.empty
// CHECK: %[[A:.+]] = tensor.insert_slice %arg0 into %[[E]][0] [4] [1] {tilewright.in_place}
// CHECK: tensor.insert_slice %arg1 into %[[A]][4] [8] [1] {tilewright.in_place}
// CHECK-NOT: @prepack
func.func @main(%w: tensor<4xf32> {tilewright.role = "weight", tilewright.name = "w"},
                %x: tensor<8xf32> {tilewright.role = "input", tilewright.name = "x"}) -> tensor<12xf32> {
  %e = tensor.empty() : tensor<12xf32>
  %a = tensor.insert_slice %w into %e[0] [4] [1] {tilewright.in_place} : tensor<4xf32> into tensor<12xf32>
  %b = tensor.insert_slice %x into %a[4] [8] [1] {tilewright.in_place} : tensor<8xf32> into tensor<12xf32>
  return %b : tensor<12xf32>
}
