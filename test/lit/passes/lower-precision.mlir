// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(lower-precision,canonicalize,cse)' | filecheck %s

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#rows = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// The input is rounded once, inside of its padding; the sum between the convolutions stays f32, and is stored rounded
// for the second convolution and for the residual addition alike.
module attributes {tilewright.precision = "bf16"} {
  // CHECK-LABEL: func.func @residual
  // CHECK: %[[W:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x4x3x3xf32>)
  // CHECK: arith.truncf
  // CHECK: %[[X:.+]] = linalg.generic {{.*}} ins(%arg1 : tensor<1x4x6x6xf32>)
  // CHECK: arith.truncf {{.*}} : f32 to bf16
  // CHECK: %[[P:.+]] = tensor.pad %[[X]]
  // CHECK: tensor<1x4x6x6xbf16> to tensor<1x4x8x8xbf16>
  // CHECK: %[[C:.+]] = linalg.conv_2d_nchw_fchw {{.*}}ins(%[[P]], %[[W]] : tensor<1x4x8x8xbf16>, tensor<4x4x3x3xbf16>) outs({{.*}} : tensor<1x4x6x6xf32>)
  // CHECK: %[[R:.+]] = linalg.generic {{.*}} ins(%[[C]] : tensor<1x4x6x6xf32>)
  // CHECK: arith.maximumf {{.*}} : f32
  // CHECK: %[[T:.+]] = linalg.generic {{.*}} ins(%[[R]] : tensor<1x4x6x6xf32>) outs({{.*}} : tensor<1x4x6x6xbf16>)
  // CHECK: arith.truncf
  // CHECK: %[[Q:.+]] = tensor.pad %[[T]]
  // CHECK: %[[D:.+]] = linalg.conv_2d_nchw_fchw {{.*}}ins(%[[Q]], %[[W]]
  // CHECK: %[[E:.+]] = linalg.generic {{.*}} ins(%[[T]] : tensor<1x4x6x6xbf16>)
  // CHECK: arith.extf
  // CHECK: linalg.generic {{.*}} ins(%[[D]], %[[E]] : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>)
  func.func @residual(%w: tensor<4x4x3x3xf32> {tilewright.role = "weight"}, %x: tensor<1x4x6x6xf32> {tilewright.role = "input"}) -> tensor<1x4x6x6xf32> {
    %z = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1x4x6x6xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
    %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%a: index, %b: index, %c: index, %d: index):
      tensor.yield %z : f32
    } : tensor<1x4x6x6xf32> to tensor<1x4x8x8xf32>
    %c0 = linalg.conv_2d_nchw_fchw ins(%p, %w : tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) outs(%f : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%c0 : tensor<1x4x6x6xf32>) outs(%e : tensor<1x4x6x6xf32>) {
    ^bb0(%i: f32, %o: f32):
      %m = arith.maximumf %i, %z : f32
      linalg.yield %m : f32
    } -> tensor<1x4x6x6xf32>
    %q = tensor.pad %r low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%a: index, %b: index, %c: index, %d: index):
      tensor.yield %z : f32
    } : tensor<1x4x6x6xf32> to tensor<1x4x8x8xf32>
    %c1 = linalg.conv_2d_nchw_fchw ins(%q, %w : tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) outs(%f : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%c1, %r : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>) outs(%e : tensor<1x4x6x6xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %m = arith.addf %i, %j : f32
      linalg.yield %m : f32
    } -> tensor<1x4x6x6xf32>
    return %s : tensor<1x4x6x6xf32>
  }
}

// -----

#swap = affine_map<(d0, d1) -> (d1, d0)>
#rows = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Behind a normalisation the matmul alone reads rounded values; a transposed weight is rounded before it is transposed.
module attributes {tilewright.precision = "bf16"} {
  // CHECK-LABEL: func.func @normalised
  // CHECK: %[[W:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<8x4xf32>) outs({{.*}} : tensor<8x4xbf16>)
  // CHECK: %[[N:.+]] = linalg.generic {{.*}} ins(%arg1, {{.*}} : tensor<3x4xf32>, tensor<3xf32>)
  // CHECK: %[[T:.+]] = linalg.generic {{.*}} ins(%[[N]] : tensor<3x4xf32>) outs({{.*}} : tensor<3x4xbf16>)
  // CHECK: %[[V:.+]] = linalg.generic {{.*}} ins(%[[W]] : tensor<8x4xbf16>) outs({{.*}} : tensor<4x8xbf16>)
  // CHECK: linalg.generic {{.*}}reduction{{.*}} ins(%[[T]], %[[V]] : tensor<3x4xbf16>, tensor<4x8xbf16>) outs({{.*}} : tensor<3x8xf32>)
  // CHECK: ^bb0(%[[A:.+]]: bf16, %[[B:.+]]: bf16, %[[O:.+]]: f32):
  // CHECK-DAG: arith.extf %[[A]]
  // CHECK-DAG: arith.extf %[[B]]
  // CHECK: linalg.generic {{.*}} ins(%[[N]] : tensor<3x4xf32>)
  // CHECK: math.exp
  func.func @normalised(%w: tensor<8x4xf32> {tilewright.role = "weight"}, %x: tensor<3x4xf32> {tilewright.role = "input"}) -> (tensor<3x8xf32>, tensor<3x4xf32>) {
    %z = arith.constant 0.0 : f32
    %e0 = tensor.empty() : tensor<3xf32>
    %f0 = linalg.fill ins(%z : f32) outs(%e0 : tensor<3xf32>) -> tensor<3xf32>
    %e1 = tensor.empty() : tensor<3x4xf32>
    %e2 = tensor.empty() : tensor<4x8xf32>
    %e3 = tensor.empty() : tensor<3x8xf32>
    %f3 = linalg.fill ins(%z : f32) outs(%e3 : tensor<3x8xf32>) -> tensor<3x8xf32>
    %sum = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<3x4xf32>) outs(%f0 : tensor<3xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.addf %i, %o : f32
      linalg.yield %s : f32
    } -> tensor<3xf32>
    %n = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]} ins(%x, %sum : tensor<3x4xf32>, tensor<3xf32>) outs(%e1 : tensor<3x4xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %s = arith.divf %i, %j : f32
      linalg.yield %s : f32
    } -> tensor<3x4xf32>
    %t = linalg.generic {indexing_maps = [#swap, #rows], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x4xf32>) outs(%e2 : tensor<4x8xf32>) {
    ^bb0(%i: f32, %o: f32):
      linalg.yield %i : f32
    } -> tensor<4x8xf32>
    %y = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%n, %t : tensor<3x4xf32>, tensor<4x8xf32>) outs(%f3 : tensor<3x8xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %p = arith.mulf %i, %j : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<3x8xf32>
    %g = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%n : tensor<3x4xf32>) outs(%e1 : tensor<3x4xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = math.exp %i : f32
      linalg.yield %s : f32
    } -> tensor<3x4xf32>
    return %y, %g : tensor<3x8xf32>, tensor<3x4xf32>
  }
}

// -----

// CHECK-LABEL: func.func @dont_lower_two_activations
// CHECK-NOT: bf16
// CHECK: return
module attributes {tilewright.precision = "bf16"} {
  func.func @dont_lower_two_activations(%a: tensor<3x4xf32> {tilewright.role = "input"}, %b: tensor<4x8xf32> {tilewright.role = "input"}, %c: tensor<3x8xf32> {tilewright.role = "input"}) -> tensor<3x8xf32> {
    %y = linalg.matmul ins(%a, %b : tensor<3x4xf32>, tensor<4x8xf32>) outs(%c : tensor<3x8xf32>) -> tensor<3x8xf32>
    return %y : tensor<3x8xf32>
  }
}

// -----

// CHECK-LABEL: func.func @dont_lower_unasked
// CHECK-NOT: bf16
// CHECK: return
func.func @dont_lower_unasked(%a: tensor<3x4xf32> {tilewright.role = "input"}, %b: tensor<4x8xf32> {tilewright.role = "weight"}, %c: tensor<3x8xf32> {tilewright.role = "input"}) -> tensor<3x8xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<3x4xf32>, tensor<4x8xf32>) outs(%c : tensor<3x8xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

// Matrix units round to tf32 themselves.
// CHECK-LABEL: func.func @dont_lower_to_tf32
// CHECK-NOT: truncf
// CHECK: linalg.matmul ins({{.*}} : tensor<3x4xf32>, tensor<4x8xf32>)
module attributes {tilewright.precision = "tf32"} {
  func.func @dont_lower_to_tf32(%a: tensor<3x4xf32> {tilewright.role = "input"}, %b: tensor<4x8xf32> {tilewright.role = "weight"}, %c: tensor<3x8xf32> {tilewright.role = "input"}) -> tensor<3x8xf32> {
    %y = linalg.matmul ins(%a, %b : tensor<3x4xf32>, tensor<4x8xf32>) outs(%c : tensor<3x8xf32>) -> tensor<3x8xf32>
    return %y : tensor<3x8xf32>
  }
}

// -----

// A parameter that is given at every call is rounded at every call.
// CHECK-LABEL: func.func @lower_parameters_that_are_given
// CHECK: linalg.matmul ins({{.*}} : tensor<3x4xbf16>, tensor<4x8xbf16>)
module attributes {tilewright.precision = "bf16"} {
  func.func @lower_parameters_that_are_given(%a: tensor<3x4xf32> {tilewright.role = "input"}, %b: tensor<4x8xf32> {tilewright.role = "input", tilewright.parameter}, %c: tensor<3x8xf32> {tilewright.role = "input"}) -> tensor<3x8xf32> {
    %y = linalg.matmul ins(%a, %b : tensor<3x4xf32>, tensor<4x8xf32>) outs(%c : tensor<3x8xf32>) -> tensor<3x8xf32>
    return %y : tensor<3x8xf32>
  }
}
