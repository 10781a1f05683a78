// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(join-in-place{under-windows=true})' | filecheck %s
// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(join-in-place)' | filecheck %s --check-prefix=INSERTED

// An input that one pooling reads padded is gathered for it, here out of another order, instead of copied into a border.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.+]]: tensor<4x6xf32>
// CHECK-NOT: tensor.insert_slice
// CHECK: %[[P:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<8x4xf32>)
// CHECK: tensor.extract %[[X]]
// CHECK: arith.select
// CHECK: linalg.generic {{.*}} ins(%[[P]], %{{.+}} : tensor<8x4xf32>, tensor<3xf32>)
// INSERTED-LABEL: func.func @main(
// INSERTED: tensor.insert_slice
func.func @main(%x: tensor<4x6xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<6x4xf32> {
  %c = arith.constant 0.0 : f32
  %t = tensor.empty() : tensor<6x4xf32>
  %y = linalg.transpose ins(%x : tensor<4x6xf32>) outs(%t : tensor<6x4xf32>) permutation = [1, 0]
  %p = tensor.pad %y low[1, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<6x4xf32> to tensor<8x4xf32>
  %w = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%c : f32) outs(%t : tensor<6x4xf32>) -> tensor<6x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i + k, j)>, affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %w : tensor<8x4xf32>, tensor<3xf32>) outs(%f : tensor<6x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.addf %out, %a : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  return %s : tensor<6x4xf32>
}

// -----

// What each of several output channels reads again would be padded again by as many rTasks: it is inserted.
// CHECK-LABEL: func.func @main(
// CHECK: tensor.insert_slice
func.func @main(%x: tensor<6x4xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<3x4x5xf32> {tilewright.name = "w", tilewright.role = "weight"}) -> tensor<6x5xf32> {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<6x4xf32> to tensor<8x4xf32>
  %t = tensor.empty() : tensor<6x5xf32>
  %f = linalg.fill ins(%c : f32) outs(%t : tensor<6x5xf32>) -> tensor<6x5xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, o, k, j) -> (i + k, j)>, affine_map<(i, o, k, j) -> (k, j, o)>, affine_map<(i, o, k, j) -> (i, o)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%p, %w : tensor<8x4xf32>, tensor<3x4x5xf32>) outs(%f : tensor<6x5xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %out, %m : f32
    linalg.yield %r : f32
  } -> tensor<6x5xf32>
  return %s : tensor<6x5xf32>
}

// -----

// What the model computes lies inside of its border at no cost.
// CHECK-LABEL: func.func @main(
// CHECK: math.exp
// CHECK: tensor.insert_slice
func.func @main(%x: tensor<6x4xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<6x4xf32> {
  %c = arith.constant 0.0 : f32
  %t = tensor.empty() : tensor<6x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<6x4xf32>) outs(%t : tensor<6x4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  %p = tensor.pad %y low[1, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<6x4xf32> to tensor<8x4xf32>
  %w = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%c : f32) outs(%t : tensor<6x4xf32>) -> tensor<6x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i + k, j)>, affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%p, %w : tensor<8x4xf32>, tensor<3xf32>) outs(%f : tensor<6x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.addf %out, %a : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  return %s : tensor<6x4xf32>
}
