// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(place-inserts,share-borders)' | filecheck %s

// A padded tensor: @square computes into the inside of the border, which @prepack fills once; @sum reads all of it.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[BORDER:[^ ]+]]: tensor<4x34xf32> {tilewright.index = 0 : i64, tilewright.name = "packed0", tilewright.role = "packed"}
// CHECK: %[[S:.+]] = call @square
// CHECK: %[[P:.+]] = tensor.insert_slice %[[S]] into %[[BORDER]][0, 1] [4, 32] [1, 1] {tilewright.in_place}
// CHECK: call @sum(%[[P]])
// CHECK: func.func @prepack() -> tensor<4x34xf32>
// CHECK: call @[[FILL:[a-z0-9_]+]]()
// CHECK: func.func private @[[FILL]]() -> tensor<4x34xf32>
// CHECK: linalg.fill
// CHECK: func.func private @square(%{{.+}}: tensor<4x32xf32>) -> (tensor<4x32xf32> {tilewright.strides = array<i64: 34, 1>})
// CHECK: func.func private @sum(%{{[a-z0-9]+}}: tensor<4x34xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<4x32xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<4xf32> {
  %c = arith.constant 0.0 : f32
  %s = call @square(%x) : (tensor<4x32xf32>) -> tensor<4x32xf32>
  %e = tensor.empty() : tensor<4x34xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4x34xf32>) -> tensor<4x34xf32>
  %p = tensor.insert_slice %s into %f[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf32> into tensor<4x34xf32>
  %r = call @sum(%p) : (tensor<4x34xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func private @square(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %e = tensor.empty() : tensor<4x32xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<4x32xf32>
  return %r : tensor<4x32xf32>
}
func.func private @sum(%x: tensor<4x34xf32>) -> tensor<4xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x34xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.addf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// Two padded tensors that do not live at the same time share one border; a third one, while they live, has its own.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[A:[^ ]+]]: tensor<20xf32> {tilewright.index = 0
// CHECK-SAME: %[[B:[^ ]+]]: tensor<20xf32> {tilewright.index = 1
// CHECK: tensor.insert_slice %{{.+}} into %[[A]]
// CHECK: tensor.insert_slice %{{.+}} into %[[B]]
// CHECK: tensor.insert_slice %{{.+}} into %[[A]]
// CHECK: func.func @prepack() -> (tensor<20xf32>, tensor<20xf32>)
func.func @main(%x: tensor<16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<16xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<20xf32>) -> tensor<20xf32>
  %1 = call @step(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %p1 = tensor.insert_slice %1 into %f[2] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<20xf32>
  %2 = call @shrink(%p1) : (tensor<20xf32>) -> tensor<16xf32>
  %p2 = tensor.insert_slice %2 into %f[2] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<20xf32>
  %3 = call @shrink(%p2) : (tensor<20xf32>) -> tensor<16xf32>
  %4 = call @step(%3) : (tensor<16xf32>) -> tensor<16xf32>
  %p4 = tensor.insert_slice %4 into %f[2] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<20xf32>
  %5 = call @shrink(%p4) : (tensor<20xf32>) -> tensor<16xf32>
  return %5 : tensor<16xf32>
}
func.func private @step(%x: tensor<16xf32>) -> tensor<16xf32> {
  return %x : tensor<16xf32>
}
func.func private @shrink(%x: tensor<20xf32>) -> tensor<16xf32> {
  %e = tensor.empty() : tensor<16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i + 4)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%x : tensor<20xf32>) outs(%e : tensor<16xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  } -> tensor<16xf32>
  return %r : tensor<16xf32>
}

// -----

// What is inserted into nothing has no border: its memory is a call's own.
// CHECK-LABEL: func.func @main(
// CHECK: tensor.empty
// CHECK-NOT: @prepack
func.func @main(%x: tensor<16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<32xf32> {
  %e = tensor.empty() : tensor<32xf32>
  %1 = call @step(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %2 = call @step(%1) : (tensor<16xf32>) -> tensor<16xf32>
  %c1 = tensor.insert_slice %1 into %e[0] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<32xf32>
  %c2 = tensor.insert_slice %2 into %c1[16] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<32xf32>
  return %c2 : tensor<32xf32>
}
func.func private @step(%x: tensor<16xf32>) -> tensor<16xf32> {
  return %x : tensor<16xf32>
}
