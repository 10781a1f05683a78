// RUN: tilewright-opt %s --pass-pipeline='builtin.module(orient-narrow-weights)' | filecheck %s

#left = affine_map<(m, n, k) -> (m, k)>
#turned_left = affine_map<(m, n, k) -> (k, m)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>
#pixels = affine_map<(b, p, n, r, k) -> (b, p + r, k)>
#filter = affine_map<(b, p, n, r, k) -> (r, k, n)>
#planes = affine_map<(b, p, n, r, k) -> (b, p, n)>

// CHECK-DAG: #[[TURNED:.+]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[MK:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[NK:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[LAST:.+]] = affine_map<(d0, d1, d2) -> (d0, d2, d1)>
// CHECK-DAG: #[[FILTER:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d3, d2, d4)>

// Three columns: the weight is transposed.
// CHECK-LABEL: func.func @three(
// CHECK: %[[W:.+]] = linalg.generic {indexing_maps = [#[[TURNED]], {{.*}} ins(%arg1 : tensor<64x3xf32>) outs(%{{.+}} : tensor<3x64xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[MK]], #[[NK]], #{{.+}}], {{.*}} ins(%arg0, %[[W]] : tensor<100x64xf32>, tensor<3x64xf32>)
func.func @three(%x: tensor<100x64xf32>, %w: tensor<64x3xf32>, %i: tensor<100x3xf32>) -> tensor<100x3xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<100x64xf32>, tensor<64x3xf32>) outs(%i : tensor<100x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<100x3xf32>
  return %r : tensor<100x3xf32>
}

// A convolution of one tap is a product too.
// CHECK-LABEL: func.func @pointwise(
// CHECK: %[[W:.+]] = linalg.generic {indexing_maps = [#[[LAST]], {{.*}} ins(%arg1 : tensor<1x32x3xf32>) outs(%{{.+}} : tensor<1x3x32xf32>)
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[FILTER]], #{{.+}}], {{.*}} ins(%arg0, %[[W]] : tensor<1x64x32xf32>, tensor<1x3x32xf32>)
func.func @pointwise(%x: tensor<1x64x32xf32>, %w: tensor<1x32x3xf32>, %i: tensor<1x64x3xf32>) -> tensor<1x64x3xf32> {
  %r = linalg.generic {indexing_maps = [#pixels, #filter, #planes], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x64x32xf32>, tensor<1x32x3xf32>) outs(%i : tensor<1x64x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x64x3xf32>
  return %r : tensor<1x64x3xf32>
}

// What was transposed before is read where it lay.
// CHECK-LABEL: func.func @stored_so(
// CHECK-COUNT-1: linalg.generic
// CHECK-SAME: ins(%arg0, %arg1 : tensor<100x64xf32>, tensor<3x64xf32>)
// CHECK-NOT: linalg.generic
func.func @stored_so(%x: tensor<100x64xf32>, %v: tensor<3x64xf32>, %i: tensor<100x3xf32>) -> tensor<100x3xf32> {
  %e = tensor.empty() : tensor<64x3xf32>
  %w = linalg.transpose ins(%v : tensor<3x64xf32>) outs(%e : tensor<64x3xf32>) permutation = [1, 0]
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<100x64xf32>, tensor<64x3xf32>) outs(%i : tensor<100x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<100x3xf32>
  return %r : tensor<100x3xf32>
}

// Not these: eight columns, a short reduction, activations across memory, few rows, and sums of 16 bits.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-5: linalg.generic {{.*}} "reduction"]} ins(%{{.+}}, %arg{{.+}} :
// CHECK-NOT: linalg.generic
func.func @others(%x: tensor<100x64xf32>, %w8: tensor<64x8xf32>, %i8: tensor<100x8xf32>, %x8: tensor<100x8xf32>, %w: tensor<8x3xf32>,
    %i: tensor<100x3xf32>, %t: tensor<64x100xf32>, %w64: tensor<64x3xf32>, %few: tensor<4x64xf32>, %i4: tensor<4x3xf32>,
    %h: tensor<100x64xf16>, %wh: tensor<64x3xf16>, %ih: tensor<100x3xf16>)
    -> (tensor<100x8xf32>, tensor<100x3xf32>, tensor<100x3xf32>, tensor<4x3xf32>, tensor<100x3xf16>) {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w8 : tensor<100x64xf32>, tensor<64x8xf32>) outs(%i8 : tensor<100x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<100x8xf32>
  %q = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x8, %w : tensor<100x8xf32>, tensor<8x3xf32>) outs(%i : tensor<100x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<100x3xf32>
  %u = linalg.generic {indexing_maps = [#turned_left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t, %w64 : tensor<64x100xf32>, tensor<64x3xf32>) outs(%i : tensor<100x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<100x3xf32>
  %v = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%few, %w64 : tensor<4x64xf32>, tensor<64x3xf32>) outs(%i4 : tensor<4x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<4x3xf32>
  %z = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %wh : tensor<100x64xf16>, tensor<64x3xf16>) outs(%ih : tensor<100x3xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %s = arith.addf %o, %p : f16
    linalg.yield %s : f16
  } -> tensor<100x3xf16>
  return %r, %q, %u, %v, %z : tensor<100x8xf32>, tensor<100x3xf32>, tensor<100x3xf32>, tensor<4x3xf32>, tensor<100x3xf16>
}
