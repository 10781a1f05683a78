// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-elementwise)' | filecheck %s

// Padding stays for the windows that slide over it; what follows them is one operation.
// CHECK-LABEL: func.func @pooling(
// CHECK: %[[P:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<9xf32>)
// CHECK: arith.select
// CHECK: %[[M:.+]] = linalg.generic {{.*}} ins(%[[P]], %{{.+}} : tensor<9xf32>, tensor<3xf32>)
// CHECK-NEXT: ^bb0
// CHECK-NEXT: arith.maximumf
// CHECK: linalg.generic {{.*}} ins(%[[M]] : tensor<4xf32>)
// CHECK: math.exp
// CHECK-NEXT: math.sqrt
// CHECK-NOT: bufferization
func.func @pooling(%x: tensor<6xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<9xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%e : tensor<9xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %at = arith.subi %i, %c1 : index
    %near = arith.minsi %at, %c5 : index
    %there = arith.maxsi %near, %c0 : index
    %in = arith.cmpi eq, %there, %at : index
    %v = tensor.extract %x[%there] : tensor<6xf32>
    %r = arith.select %in, %v, %c : f32
    linalg.yield %r : f32
  } -> tensor<9xf32>
  %w = tensor.empty() : tensor<3xf32>
  %o = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%c : f32) outs(%o : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i * 2 + k)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%p, %w : tensor<9xf32>, tensor<3xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.maximumf %out, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%m : tensor<4xf32>) outs(%o : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%y : tensor<4xf32>) outs(%o : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.sqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// Element-wise readers pad as they read.
// CHECK-LABEL: func.func @elementwise(
// CHECK-COUNT-1: linalg.generic
// CHECK: arith.select
// CHECK-NEXT: math.sqrt
func.func @elementwise(%x: tensor<6xf32>) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%e : tensor<9xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %at = arith.subi %i, %c1 : index
    %near = arith.minsi %at, %c5 : index
    %there = arith.maxsi %near, %c0 : index
    %in = arith.cmpi eq, %there, %at : index
    %v = tensor.extract %x[%there] : tensor<6xf32>
    %r = arith.select %in, %v, %c : f32
    linalg.yield %r : f32
  } -> tensor<9xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%p : tensor<9xf32>) outs(%e : tensor<9xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.sqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<9xf32>
  return %z : tensor<9xf32>
}

// What adds to its result without a reduction reads it as an input: fused as it was, it would be added to once for every copy.
// CHECK-LABEL: func.func @added_once
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK: linalg.generic {{.+}} iterator_types = ["parallel", "parallel"]} ins(%[[A]], %[[B]] : tensor<4xf32>, tensor<4xf32>) outs(%{{.+}} : tensor<3x4xf32>)
// CHECK: mulf
// CHECK-NEXT: addf
// CHECK-NEXT: linalg.yield %{{[0-9]+}} : f32
#line = affine_map<(d0) -> (d0)>
#whole = affine_map<(d0, d1) -> (d0, d1)>
#inner = affine_map<(d0, d1) -> (d1)>
func.func @added_once(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#line, #line, #line], iterator_types = ["parallel"]} ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  %e3 = tensor.empty() : tensor<3x4xf32>
  %r = linalg.generic {indexing_maps = [#inner, #whole], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<4xf32>) outs(%e3 : tensor<3x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}
