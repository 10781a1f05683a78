// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(choose-winograd{outputs=4 target=x86-64-v4},transform-filters)' | filecheck %s
// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(choose-winograd{target=x86-64-v4},transform-filters)' | filecheck %s --check-prefix=CHOSEN

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#packed = affine_map<(n, h, w, f, r, s, c) -> (f floordiv 32, r, s, c, f mod 32)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// CHECK-DAG: #[[PLANES:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, d2, d3, d6, d7)>
// CHECK-DAG: #[[TAPS:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d6, d7, d4, d5)>
// CHECK-DAG: #[[STORED:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d2, d3, d4, d5)>
// CHECK-DAG: #[[FILTER:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3 floordiv 32, 0, d4, d5, d6, d3 mod 32)>

// Nine planes of the filter and thirty-six of its transforms; the convolution goes on reading the first nine.
// CHECK-LABEL: func.func @weight
// CHECK-DAG: %[[K:.+]] = arith.constant dense<{{.*}}> : tensor<5x3x3x3x3xf32>
// CHECK: %[[START:.+]] = linalg.fill {{.*}} outs(%{{.+}} : tensor<2x5x3x3x64x32xf32>)
// CHECK: %[[P:.+]] = linalg.generic {indexing_maps = [#[[PLANES]], #[[TAPS]], #[[STORED]]]
// CHECK-SAME: ins(%[[K]], %arg1 : tensor<5x3x3x3x3xf32>, tensor<2x3x3x64x32xf32>) outs(%[[START]]
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[FILTER]], #{{.+}}]
// CHECK-SAME: ins(%arg0, %[[P]] : tensor<1x58x58x64xf32>, tensor<2x5x3x3x64x32xf32>)
// CHECK-SAME: attrs = {tilewright.winograd = 4 : i64}
// CHOSEN-LABEL: func.func @weight
// CHOSEN: tilewright.winograd = 4 : i64
func.func @weight(%x: tensor<1x58x58x64xf32>, %w: tensor<2x3x3x64x32xf32> {tilewright.role = "weight"}, %i: tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32> {
  %r = linalg.generic {indexing_maps = [#data, #packed, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x58x58x64xf32>, tensor<2x3x3x64x32xf32>) outs(%i : tensor<1x56x56x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x56x56x64xf32>
  return %r : tensor<1x56x56x64xf32>
}

// Two convolutions with one filter store it once; a filter that is not packed has no dimension of blocks.
// CHECK-LABEL: func.func @shared
// CHECK: %[[P:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<5x3x3x8x24xf32>)
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[P]] : {{.*}}tilewright.winograd
// CHECK-NOT: tensor<5x3x3x3x3xf32>
// CHECK: linalg.generic {{.*}} ins(%arg1, %[[P]] : {{.*}}tilewright.winograd
func.func @shared(%x: tensor<1x10x10x8xf32>, %y: tensor<1x10x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> (tensor<1x8x8x24xf32>, tensor<1x8x8x24xf32>) {
  %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  %q = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%y, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r, %q : tensor<1x8x8x24xf32>, tensor<1x8x8x24xf32>
}

// Four outputs of one row are no 4x4 tile.
// CHECK-LABEL: func.func @narrow
// CHECK-NOT: tilewright.winograd
// CHECK: return
func.func @narrow(%x: tensor<1x3x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x1x8x24xf32>) -> tensor<1x1x8x24xf32> {
  %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x3x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x1x8x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x1x8x24xf32>
  return %r : tensor<1x1x8x24xf32>
}

// A filter that comes with the call would be transformed at every call.
// CHECK-LABEL: func.func @input
// CHECK-NOT: tilewright.winograd
// CHECK: return
func.func @input(%x: tensor<1x58x58x64xf32>, %w: tensor<2x3x3x64x32xf32> {tilewright.role = "input"}, %i: tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32> {
  %r = linalg.generic {indexing_maps = [#data, #packed, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x58x58x64xf32>, tensor<2x3x3x64x32xf32>) outs(%i : tensor<1x56x56x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x56x56x64xf32>
  return %r : tensor<1x56x56x64xf32>
}

// -----

#strided = affine_map<(n, h, w, f, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>
#dilated = affine_map<(n, h, w, f, r, s, c) -> (n, h + r * 2, w + s * 2, c)>
#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// CHECK-LABEL: func.func @stride
// CHECK-NOT: tilewright.winograd
// CHECK: return
func.func @stride(%x: tensor<1x17x17x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  %r = linalg.generic {indexing_maps = [#strided, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x17x17x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// CHECK-LABEL: func.func @dilation
// CHECK-NOT: tilewright.winograd
// CHECK: return
func.func @dilation(%x: tensor<1x12x12x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
  %r = linalg.generic {indexing_maps = [#dilated, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x12x12x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x24xf32>
  return %r : tensor<1x8x8x24xf32>
}

// CHECK-LABEL: func.func @f64
// CHECK-NOT: tilewright.winograd
// CHECK: return
func.func @f64(%x: tensor<1x10x10x8xf64>, %w: tensor<3x3x8x24xf64> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf64>) -> tensor<1x8x8x24xf64> {
  %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x10x10x8xf64>, tensor<3x3x8x24xf64>) outs(%i : tensor<1x8x8x24xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %p = arith.mulf %a, %b : f64
    %s = arith.addf %o, %p : f64
    linalg.yield %s : f64
  } -> tensor<1x8x8x24xf64>
  return %r : tensor<1x8x8x24xf64>
}

// -----

#data = affine_map<(n, h, w, f, r, s, c) -> (n, h + r, w + s, c)>
#plain = affine_map<(n, h, w, f, r, s, c) -> (r, s, c, f)>
#result = affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>

// Whoever compiles may ask for direct convolutions.
// CHECK-LABEL: func.func @asked
// CHECK-NOT: tilewright.winograd
// CHECK: return
module attributes {tilewright.winograd = false} {
  func.func @asked(%x: tensor<1x10x10x8xf32>, %w: tensor<3x3x8x24xf32> {tilewright.role = "weight"}, %i: tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32> {
    %r = linalg.generic {indexing_maps = [#data, #plain, #result], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
        ins(%x, %w : tensor<1x10x10x8xf32>, tensor<3x3x8x24xf32>) outs(%i : tensor<1x8x8x24xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<1x8x8x24xf32>
    return %r : tensor<1x8x8x24xf32>
  }
}
