// RUN: tilewright-opt %s --pass-pipeline='builtin.module(mark-once)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(mark-once,construct-schedules{target=x86-64-v3})' | filecheck %s --check-prefix=SCHEDULED

// Only @prepack runs it: its kernel is one for all shapes, and has no schedule.
// CHECK: func.func private @transposed({{.*}} attributes {tilewright.once, tilewright.operator = "elementwise"}
// SCHEDULED: func.func private @transposed(
// SCHEDULED-NOT: tilewright.schedule
// SCHEDULED-SAME: tilewright.once
// SCHEDULED-SAME: tilewright.unscheduled = "it runs once, by a kernel that is told its extents and strides"
func.func private @transposed(%w: tensor<4x8xf32>) -> tensor<8x4xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<8x4xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<4x8xf32>) outs(%e : tensor<8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}

// An index that is a quotient is in no table of strides: it runs once, by a kernel of its own.
// CHECK: func.func private @repeated({{.*}} attributes {tilewright.once
// SCHEDULED: func.func private @repeated(
// SCHEDULED-SAME: tilewright.once
// SCHEDULED-SAME: tilewright.schedule
func.func private @repeated(%w: tensor<4xf32>) -> tensor<8xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<8xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 floordiv 2)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%w : tensor<4xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8xf32>
  return %t : tensor<8xf32>
}

// Calls run it too.
// CHECK: func.func private @shared(
// CHECK-NOT: tilewright.once
// SCHEDULED: func.func private @shared(
// SCHEDULED-SAME: tilewright.schedule
func.func private @shared(%w: tensor<8xf32>) -> tensor<8xf32> attributes {tilewright.operator = "elementwise"} {
  %e = tensor.empty() : tensor<8xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%w : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  return %t : tensor<8xf32>
}

// A product has a kernel that is worth a schedule, once or not.
// CHECK: func.func private @product(
// CHECK-NOT: tilewright.once
func.func private @product(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> attributes {tilewright.operator = "matmul"} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x4xf32>) outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %c : tensor<4x4xf32>
}

// CHECK: func.func @main(
func.func @main(%p: tensor<4x4xf32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %y = call @shared(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

func.func @prepack(%w: tensor<4x8xf32>, %v: tensor<4xf32>) -> (tensor<4x4xf32>, tensor<8xf32>) {
  %t = call @transposed(%w) : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %r = call @repeated(%v) : (tensor<4xf32>) -> tensor<8xf32>
  %s = call @shared(%r) : (tensor<8xf32>) -> tensor<8xf32>
  %c = call @product(%w, %t) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %c, %s : tensor<4x4xf32>, tensor<8xf32>
}
