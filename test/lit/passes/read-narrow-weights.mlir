// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(read-narrow-weights{rows=4})' | filecheck %s

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// Unsigned bytes around zero points, scaled for each column: read as signed bytes, the rest on the result.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<4x64xf32>
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<64x32xi8>
// CHECK-SAME: %[[Z:[a-z0-9]+]]: tensor<32xi32>
// CHECK-SAME: %[[S:[a-z0-9]+]]: tensor<32xf32>
// CHECK: %[[SIGNED:.+]] = linalg.generic {{.+}} ins(%[[W]] : tensor<64x32xi8>) outs(%{{.+}} : tensor<64x32xi8>)
// CHECK: arith.xori
// CHECK: %[[PRODUCT:.+]] = linalg.generic {{.+}} ins(%[[X]], %[[SIGNED]] : tensor<4x64xf32>, tensor<64x32xi8>)
// CHECK: arith.sitofp %{{.+}} : i8 to f32
// CHECK: %[[SUMS:.+]] = linalg.generic {{.+}} ins(%[[X]] : tensor<4x64xf32>) outs(%{{.+}} : tensor<4xf32>)
// CHECK: %[[MOVED:.+]] = linalg.generic {{.+}} ins(%[[PRODUCT]], %[[Z]], %[[SUMS]] :
// CHECK: arith.subi %{{.+}}, %{{.+}} : i32
// CHECK: %[[SCALED:.+]] = linalg.generic {{.+}} ins(%[[MOVED]], %[[S]] :
// CHECK: return %[[SCALED]]
func.func @main(%x: tensor<4x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<64x32xi8> {tilewright.name = "w", tilewright.role = "weight"}, %z: tensor<32xi32> {tilewright.name = "z", tilewright.role = "weight"}, %s: tensor<32xf32> {tilewright.name = "s", tilewright.role = "weight"}) -> tensor<4x32xf32> {
  %zero = arith.constant 0.0 : f32
  %ei = tensor.empty() : tensor<64x32xi32>
  %ef = tensor.empty() : tensor<64x32xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x32xi8>) outs(%ei : tensor<64x32xi32>) {
  ^bb0(%a: i8, %o: i32):
    %b = arith.extui %a : i8 to i32
    linalg.yield %b : i32
  } -> tensor<64x32xi32>
  %2 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %z : tensor<64x32xi32>, tensor<32xi32>) outs(%ei : tensor<64x32xi32>) {
  ^bb0(%a: i32, %p: i32, %o: i32):
    %b = arith.subi %a, %p : i32
    linalg.yield %b : i32
  } -> tensor<64x32xi32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<64x32xi32>) outs(%ef : tensor<64x32xf32>) {
  ^bb0(%a: i32, %o: f32):
    %b = arith.sitofp %a : i32 to f32
    linalg.yield %b : f32
  } -> tensor<64x32xf32>
  %4 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%3, %s : tensor<64x32xf32>, tensor<32xf32>) outs(%ef : tensor<64x32xf32>) {
  ^bb0(%a: f32, %p: f32, %o: f32):
    %b = arith.mulf %a, %p : f32
    linalg.yield %b : f32
  } -> tensor<64x32xf32>
  %e = tensor.empty() : tensor<4x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x32xf32>) -> tensor<4x32xf32>
  %c = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %4 : tensor<4x64xf32>, tensor<64x32xf32>) outs(%f : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<4x32xf32>
  return %c : tensor<4x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>

// Halves that are stored transposed are read so.
// CHECK-DAG: #[[NK:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @main(
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[NK]], #{{.+}}], {{.+}} ins(%{{.+}}, %{{.+}} : tensor<1x64xf32>, tensor<32x64xbf16>)
// CHECK: arith.extf %{{.+}} : bf16 to f32
func.func @main(%x: tensor<1x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<32x64xbf16> {tilewright.name = "w", tilewright.role = "weight"}) -> tensor<1x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e1 = tensor.empty() : tensor<32x64xf32>
  %e2 = tensor.empty() : tensor<64x32xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<32x64xbf16>) outs(%e1 : tensor<32x64xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %b = arith.extf %a : bf16 to f32
    linalg.yield %b : f32
  } -> tensor<32x64xf32>
  %2 = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<32x64xf32>) outs(%e2 : tensor<64x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  %e = tensor.empty() : tensor<1x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x32xf32>) -> tensor<1x32xf32>
  %c = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %2 : tensor<1x64xf32>, tensor<64x32xf32>) outs(%f : tensor<1x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<1x32xf32>
  return %c : tensor<1x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Factors along the reduction stay where they are, and five rows are more than four.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: f32>, tensor<64x32xi8>
func.func @main(%x: tensor<4x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %y: tensor<5x64xf32> {tilewright.name = "y", tilewright.role = "input"}, %w: tensor<64x32xi8> {tilewright.name = "w", tilewright.role = "weight"}, %s: tensor<64xf32> {tilewright.name = "s", tilewright.role = "weight"}) -> (tensor<4x32xf32>, tensor<5x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %ef = tensor.empty() : tensor<64x32xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x32xi8>) outs(%ef : tensor<64x32xf32>) {
  ^bb0(%a: i8, %o: f32):
    %b = arith.sitofp %a : i8 to f32
    linalg.yield %b : f32
  } -> tensor<64x32xf32>
  %2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %s : tensor<64x32xf32>, tensor<64xf32>) outs(%ef : tensor<64x32xf32>) {
  ^bb0(%a: f32, %p: f32, %o: f32):
    %b = arith.mulf %a, %p : f32
    linalg.yield %b : f32
  } -> tensor<64x32xf32>
  %e4 = tensor.empty() : tensor<4x32xf32>
  %f4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<4x32xf32>) -> tensor<4x32xf32>
  %c4 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %2 : tensor<4x64xf32>, tensor<64x32xf32>) outs(%f4 : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<4x32xf32>
  %e5 = tensor.empty() : tensor<5x32xf32>
  %f5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<5x32xf32>) -> tensor<5x32xf32>
  %c5 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%y, %1 : tensor<5x64xf32>, tensor<64x32xf32>) outs(%f5 : tensor<5x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<5x32xf32>
  return %c4, %c5 : tensor<4x32xf32>, tensor<5x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// Bytes less bytes wrap around before they are converted, which the difference of two sums does not.
// CHECK-LABEL: func.func @main(
// CHECK: arith.subi %{{.+}}, %{{.+}} : i8
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<1x64xf32>, tensor<64x32xf32>)
// CHECK-NOT: arith.subf
func.func @main(%x: tensor<1x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<64x32xi8> {tilewright.name = "w", tilewright.role = "weight"}, %z: tensor<32xi8> {tilewright.name = "z", tilewright.role = "weight"}) -> tensor<1x32xf32> {
  %zero = arith.constant 0.0 : f32
  %ei = tensor.empty() : tensor<64x32xi8>
  %ef = tensor.empty() : tensor<64x32xf32>
  %1 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%w, %z : tensor<64x32xi8>, tensor<32xi8>) outs(%ei : tensor<64x32xi8>) {
  ^bb0(%a: i8, %p: i8, %o: i8):
    %b = arith.subi %a, %p : i8
    linalg.yield %b : i8
  } -> tensor<64x32xi8>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<64x32xi8>) outs(%ef : tensor<64x32xf32>) {
  ^bb0(%a: i8, %o: f32):
    %b = arith.sitofp %a : i8 to f32
    linalg.yield %b : f32
  } -> tensor<64x32xf32>
  %e = tensor.empty() : tensor<1x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x32xf32>) -> tensor<1x32xf32>
  %c = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %2 : tensor<1x64xf32>, tensor<64x32xf32>) outs(%f : tensor<1x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<1x32xf32>
  return %c : tensor<1x32xf32>
}
