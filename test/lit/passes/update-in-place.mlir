// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(update-in-place)' | filecheck %s

// A row is written where the argument lies, and what reads the new value comes later. A scatter that is called elsewhere
// too has a clone.
// CHECK-LABEL: func.func @main(
// CHECK: %[[NEW:.+]] = call @scatter_over_2(%{{.+}}, %{{.+}}, %{{.+}}) {tilewright.overwrites = 2 : i64}
// CHECK: %[[OTHER:.+]] = call @scatter(%{{[^)]+}}) :
// CHECK: return %[[NEW]], %[[OTHER]]
// CHECK: func.func private @scatter({{.+}}) -> tensor<9x4xf32> {
// CHECK: func.func private @scatter_over_2({{.+}}) -> tensor<9x4xf32> attributes {tilewright.overwrites = 2 : i64}
func.func @main(%cache: tensor<9x4xf32> {tilewright.name = "cache", tilewright.role = "input", tilewright.updated_by = 0}, %x: tensor<9x4xf32> {tilewright.name = "x", tilewright.role = "input"}, %row: tensor<1x1x4xf32> {tilewright.name = "row", tilewright.role = "input"}, %at: tensor<1x1xi64> {tilewright.name = "at", tilewright.role = "input"}) -> (tensor<9x4xf32>, tensor<9x4xf32>) {
  %new = call @scatter(%row, %at, %cache) : (tensor<1x1x4xf32>, tensor<1x1xi64>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %other = call @scatter(%row, %at, %x) : (tensor<1x1x4xf32>, tensor<1x1xi64>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return %new, %other : tensor<9x4xf32>, tensor<9x4xf32>
}
func.func private @scatter(%u: tensor<1x1x4xf32>, %at: tensor<1x1xi64>, %x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%u, %at : tensor<1x1x4xf32>, tensor<1x1xi64>) outs(%x : tensor<9x4xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}

// -----

// Two writes, one after the other, between reshapes; the check of the second one moves before the first.
// CHECK-LABEL: func.func @main(
// CHECK: call @checked(%{{.+}}) : (tensor<1x1xi64>) -> tensor<1x1xi64>
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape
// CHECK: %[[AT:.+]] = call @checked(
// CHECK: %[[ONE:.+]] = call @scatter(%{{.+}}, %{{.+}}, %[[FLAT]]) {tilewright.overwrites = 2 : i64}
// CHECK: %[[TWO:.+]] = call @scatter(%{{.+}}, %[[AT]], %[[ONE]]) {tilewright.overwrites = 2 : i64}
// CHECK: %[[SHAPED:.+]] = tensor.expand_shape %[[TWO]]
// CHECK: return %[[SHAPED]]
// CHECK: func.func private @scatter({{.+}}) -> tensor<9x4xf32> attributes {tilewright.overwrites = 2 : i64}
func.func @main(%cache: tensor<3x3x4xf32> {tilewright.name = "cache", tilewright.role = "input", tilewright.updated_by = 0}, %row: tensor<1x1x4xf32> {tilewright.name = "row", tilewright.role = "input"}, %i: tensor<1x1xi64> {tilewright.name = "i", tilewright.role = "input"}, %j: tensor<1x1xi64> {tilewright.name = "j", tilewright.role = "input"}) -> tensor<3x3x4xf32> {
  %a = call @checked(%i) : (tensor<1x1xi64>) -> tensor<1x1xi64>
  %flat = tensor.collapse_shape %cache [[0, 1], [2]] : tensor<3x3x4xf32> into tensor<9x4xf32>
  %one = call @scatter(%row, %a, %flat) : (tensor<1x1x4xf32>, tensor<1x1xi64>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %b = call @checked(%j) : (tensor<1x1xi64>) -> tensor<1x1xi64>
  %two = call @scatter(%row, %b, %one) : (tensor<1x1x4xf32>, tensor<1x1xi64>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %shaped = tensor.expand_shape %two [[0, 1], [2]] output_shape [3, 3, 4] : tensor<9x4xf32> into tensor<3x3x4xf32>
  return %shaped : tensor<3x3x4xf32>
}
func.func private @scatter(%u: tensor<1x1x4xf32>, %at: tensor<1x1xi64>, %x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%u, %at : tensor<1x1x4xf32>, tensor<1x1xi64>) outs(%x : tensor<9x4xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}
func.func private @checked(%x: tensor<1x1xi64>) -> tensor<1x1xi64> {
  %e = tensor.empty() : tensor<1x1xi64>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1x1xi64>) outs(%e : tensor<1x1xi64>) {
  ^bb0(%a: i64, %b: i64):
    %c9 = arith.constant 9 : i64
    %ok = arith.cmpi ult, %a, %c9 : i64
    cf.assert %ok, "index out of range"
    linalg.yield %a : i64
  } -> tensor<1x1xi64>
  return %r : tensor<1x1xi64>
}

// -----

// What reads the old value, by a view of it, moves before the write.
// CHECK-LABEL: func.func @main(
// CHECK: %[[OLD:.+]] = call @double(
// CHECK: %[[NEW:.+]] = call @scatter({{.+}}) {tilewright.overwrites = 2 : i64}
// CHECK: return %[[NEW]], %[[OLD]]
func.func @main(%cache: tensor<9x4xf32> {tilewright.name = "cache", tilewright.role = "input", tilewright.updated_by = 0}, %row: tensor<1x1x4xf32> {tilewright.name = "row", tilewright.role = "input"}, %at: tensor<1x1xi64> {tilewright.name = "at", tilewright.role = "input"}) -> (tensor<9x4xf32>, tensor<36xf32>) {
  %flat = tensor.collapse_shape %cache [[0, 1]] : tensor<9x4xf32> into tensor<36xf32>
  %new = call @scatter(%row, %at, %cache) : (tensor<1x1x4xf32>, tensor<1x1xi64>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %old = call @double(%flat) : (tensor<36xf32>) -> tensor<36xf32>
  return %new, %old : tensor<9x4xf32>, tensor<36xf32>
}
func.func private @double(%x: tensor<36xf32>) -> tensor<36xf32> {
  %e = tensor.empty() : tensor<36xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%x : tensor<36xf32>) outs(%e : tensor<36xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.addf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<36xf32>
  return %r : tensor<36xf32>
}
func.func private @scatter(%u: tensor<1x1x4xf32>, %at: tensor<1x1xi64>, %x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%u, %at : tensor<1x1x4xf32>, tensor<1x1xi64>) outs(%x : tensor<9x4xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}

// -----

// What reads the old value and the new one has both, in two places.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: overwrites
// CHECK: -----
func.func @main(%cache: tensor<9x4xf32> {tilewright.name = "cache", tilewright.role = "input", tilewright.updated_by = 0}, %row: tensor<1x1x4xf32> {tilewright.name = "row", tilewright.role = "input"}, %at: tensor<1x1xi64> {tilewright.name = "at", tilewright.role = "input"}) -> (tensor<9x4xf32>, tensor<9x4xf32>) {
  %new = call @scatter(%row, %at, %cache) : (tensor<1x1x4xf32>, tensor<1x1xi64>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %sum = call @add(%cache, %new) : (tensor<9x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return %new, %sum : tensor<9x4xf32>, tensor<9x4xf32>
}
func.func private @add(%x: tensor<9x4xf32>, %y: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %e = tensor.empty() : tensor<9x4xf32>
  %r = linalg.add ins(%x, %y : tensor<9x4xf32>, tensor<9x4xf32>) outs(%e : tensor<9x4xf32>) -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}
func.func private @scatter(%u: tensor<1x1x4xf32>, %at: tensor<1x1xi64>, %x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%u, %at : tensor<1x1x4xf32>, tensor<1x1xi64>) outs(%x : tensor<9x4xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}

// -----

// An insertion is a write as well, but not of what it reads itself of the argument.
// CHECK-LABEL: func.func @main(
// CHECK: %[[ONE:.+]] = call @insert(%{{.+}}, %{{.+}}) {tilewright.overwrites = 1 : i64}
// CHECK: %[[ROW:.+]] = tensor.extract_slice %[[OTHER:.+]][4, 0] [1, 4]
// CHECK: %[[TWO:.+]] = call @insert_0(%[[ROW]], %[[OTHER]]) : (
// CHECK: return %[[ONE]], %[[TWO]]
func.func @main(%a: tensor<9x4xf32> {tilewright.name = "a", tilewright.role = "input", tilewright.updated_by = 0}, %b: tensor<9x4xf32> {tilewright.name = "b", tilewright.role = "input", tilewright.updated_by = 1}, %row: tensor<1x4xf32> {tilewright.name = "row", tilewright.role = "input"}) -> (tensor<9x4xf32>, tensor<9x4xf32>) {
  %one = call @insert(%row, %a) : (tensor<1x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %part = tensor.extract_slice %b[4, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
  %two = call @insert_0(%part, %b) : (tensor<1x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return %one, %two : tensor<9x4xf32>, tensor<9x4xf32>
}
func.func private @insert(%u: tensor<1x4xf32>, %x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %r = tensor.insert_slice %u into %x[3, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}
func.func private @insert_0(%u: tensor<1x4xf32>, %x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %r = tensor.insert_slice %u into %x[5, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}

// -----

// Every element is computed from itself: what reads the old value moves before, the row that all elements read stays apart.
// CHECK-LABEL: func.func @main(
// CHECK: %[[OLD:.+]] = call @add_0(
// CHECK: %[[ONE:.+]] = call @add(%{{.+}}, %{{.+}}) {tilewright.overwrites = 0 : i64}
// CHECK: %[[TWO:.+]] = call @rows(%{{.+}}, %{{.+}}) : (
// CHECK: return %[[ONE]], %[[TWO]], %[[OLD]]
// CHECK: func.func private @add({{.+}}) -> tensor<9x4xf32> attributes {tilewright.overwrites = 0 : i64, tilewright.replaces}
func.func @main(%a: tensor<9x4xf32> {tilewright.name = "a", tilewright.role = "input", tilewright.updated_by = 0}, %b: tensor<9x4xf32> {tilewright.name = "b", tilewright.role = "input", tilewright.updated_by = 1}, %x: tensor<9x4xf32> {tilewright.name = "x", tilewright.role = "input"}) -> (tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>) {
  %one = call @add(%a, %x) : (tensor<9x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %two = call @rows(%b, %x) : (tensor<9x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %old = call @add_0(%a, %a) : (tensor<9x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return %one, %two, %old : tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>
}
func.func private @add(%x: tensor<9x4xf32>, %y: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %e = tensor.empty() : tensor<9x4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<9x4xf32>, tensor<9x4xf32>) outs(%e : tensor<9x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}
func.func private @add_0(%x: tensor<9x4xf32>, %y: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %e = tensor.empty() : tensor<9x4xf32>
  %r = linalg.add ins(%x, %y : tensor<9x4xf32>, tensor<9x4xf32>) outs(%e : tensor<9x4xf32>) -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}
func.func private @rows(%x: tensor<9x4xf32>, %y: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %e = tensor.empty() : tensor<9x4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (8 - i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<9x4xf32>, tensor<9x4xf32>) outs(%e : tensor<9x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}
