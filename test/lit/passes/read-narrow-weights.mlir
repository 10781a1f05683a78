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
// CHECK: arith.addi %{{.+}}, %c-128_i8 : i8
// CHECK: %[[PRODUCT:.+]] = linalg.generic {{.+}} ins(%[[X]], %[[SIGNED]] : tensor<4x64xf32>, tensor<64x32xi8>)
// CHECK: arith.sitofp %{{.+}} : i8 to f32
// CHECK: %[[SUMS:.+]] = linalg.generic {{.+}} ins(%[[X]] : tensor<4x64xf32>) outs(%{{.+}} : tensor<4xf32>)
// CHECK: %[[POINTS:.+]] = linalg.generic {{.+}} ins(%[[Z]] : tensor<32xi32>) outs(%{{.+}} : tensor<32xf32>)
// CHECK: arith.subi %{{.+}}, %c128_i32 : i32
// CHECK: %[[FACTORS:.+]] = linalg.generic {{.+}} ins(%[[S]] : tensor<32xf32>)
// CHECK: %[[SCALED:.+]] = linalg.generic {{.+}} ins(%[[PRODUCT]], %[[SUMS]], %[[POINTS]], %[[FACTORS]] :
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

// Bytes less bytes wrap around before they are converted, which the difference of two sums does not: the difference is stored.
// CHECK-LABEL: func.func @main(
// CHECK: %[[LESS:.+]] = linalg.generic {{.+}} ins(%{{.+}}, %{{.+}} : tensor<64x32xi8>, tensor<32xi8>)
// CHECK: arith.subi %{{.+}}, %{{.+}} : i8
// CHECK: ins(%{{.+}}, %[[LESS]] : tensor<1x64xf32>, tensor<64x32xi8>)
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

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(b, i, n) -> (b, i, n)>
#block = affine_map<(b, i, n) -> (b, n)>

// Zero points and factors of blocks of 16 steps: a product for every block, then their sum.
// CHECK-DAG: #[[ROWS:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>
// CHECK-DAG: #[[BLOCKS:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x64xf32>
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<4x16x32xi8>
// CHECK: %[[CUT:.+]] = tensor.expand_shape %[[X]] {{\[}}[0], [1, 2]] output_shape [2, 4, 16]
// CHECK: %[[PRODUCTS:.+]] = linalg.generic {indexing_maps = [#[[ROWS]], #[[BLOCKS]], #{{.+}}], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[CUT]], %[[W]] : tensor<2x4x16xf32>, tensor<4x16x32xi8>) outs(%{{.+}} : tensor<4x2x32xf32>)
// CHECK: %[[SUMS:.+]] = linalg.generic {{.+}} ins(%[[CUT]] : tensor<2x4x16xf32>) outs(%{{.+}} : tensor<4x2xf32>)
// CHECK: linalg.generic {{.+}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[PRODUCTS]], %[[SUMS]], %{{.+}}, %{{.+}} : {{.+}}) outs(%{{.+}} : tensor<2x32xf32>)
func.func @main(%x: tensor<2x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<4x16x32xi8> {tilewright.name = "w", tilewright.role = "weight"}, %z: tensor<4x32xf32> {tilewright.name = "z", tilewright.role = "weight"}, %s: tensor<4x32xf32> {tilewright.name = "s", tilewright.role = "weight"}) -> tensor<2x32xf32> {
  %zero = arith.constant 0.0 : f32
  %ef = tensor.empty() : tensor<4x16x32xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%w : tensor<4x16x32xi8>) outs(%ef : tensor<4x16x32xf32>) {
  ^bb0(%a: i8, %o: f32):
    %b = arith.sitofp %a : i8 to f32
    linalg.yield %b : f32
  } -> tensor<4x16x32xf32>
  %2 = linalg.generic {indexing_maps = [#id, #block, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %z : tensor<4x16x32xf32>, tensor<4x32xf32>) outs(%ef : tensor<4x16x32xf32>) {
  ^bb0(%a: f32, %p: f32, %o: f32):
    %b = arith.subf %a, %p : f32
    linalg.yield %b : f32
  } -> tensor<4x16x32xf32>
  %3 = linalg.generic {indexing_maps = [#block, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s, %2 : tensor<4x32xf32>, tensor<4x16x32xf32>) outs(%ef : tensor<4x16x32xf32>) {
  ^bb0(%p: f32, %a: f32, %o: f32):
    %b = arith.mulf %p, %a : f32
    linalg.yield %b : f32
  } -> tensor<4x16x32xf32>
  %4 = tensor.collapse_shape %3 [[0, 1], [2]] : tensor<4x16x32xf32> into tensor<64x32xf32>
  %e = tensor.empty() : tensor<2x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x32xf32>) -> tensor<2x32xf32>
  %c = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %4 : tensor<2x64xf32>, tensor<64x32xf32>) outs(%f : tensor<2x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<2x32xf32>
  return %c : tensor<2x32xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(i, j) -> (i, j)>
#scalar = affine_map<(i, j) -> ()>

// Numbers from -8 to 7 are stored two in a byte, 8 higher; a loop of two steps takes them out, and 8 times the sum of the row off.
// CHECK-DAG: #[[PAIRS:.+]] = affine_map<(d0, d1, d2, d3) -> (d2, d1)>
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x64xf32>
// CHECK: %[[BYTES:.+]] = linalg.generic {{.+}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.+}} : tensor<32x2x16xi32>) outs(%{{.+}} : tensor<32x16xi8>)
// CHECK: arith.addi %{{.+}}, %c8_i8
// CHECK: %[[STEP:.+]] = linalg.index 2
// CHECK: arith.shli
// CHECK: arith.ori
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[PAIRS]], #{{.+}}], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%{{.+}}, %[[BYTES]] : tensor<1x32x2xf32>, tensor<32x16xi8>)
// CHECK: linalg.index 3
// CHECK: arith.shrui
// CHECK: arith.andi %{{.+}}, %c15_i8
// CHECK: arith.uitofp
// CHECK: %[[SUM:.+]] = linalg.generic {{.+}} ins(%{{.+}} : tensor<1x32x2xf32>) outs(%{{.+}} : tensor<1xf32>)
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %[[SUM]] : tensor<1x16xf32>, tensor<1xf32>)
// CHECK: arith.mulf %cst{{.*}}, %{{.+}} : f32
func.func @main(%x: tensor<1x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<64x16xi8> {tilewright.name = "w", tilewright.role = "weight"}) -> tensor<1x16xf32> {
  %zero = arith.constant 0.0 : f32
  %eight = arith.constant dense<8> : tensor<i32>
  %fifteen = arith.constant 15 : i8
  %ei = tensor.empty() : tensor<64x16xi32>
  %ef = tensor.empty() : tensor<64x16xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x16xi8>) outs(%ei : tensor<64x16xi32>) {
  ^bb0(%a: i8, %o: i32):
    %b = arith.andi %a, %fifteen : i8
    %d = arith.extui %b : i8 to i32
    linalg.yield %d : i32
  } -> tensor<64x16xi32>
  %2 = linalg.generic {indexing_maps = [#id, #scalar, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %eight : tensor<64x16xi32>, tensor<i32>) outs(%ei : tensor<64x16xi32>) {
  ^bb0(%a: i32, %p: i32, %o: i32):
    %b = arith.subi %a, %p : i32
    linalg.yield %b : i32
  } -> tensor<64x16xi32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<64x16xi32>) outs(%ef : tensor<64x16xf32>) {
  ^bb0(%a: i32, %o: f32):
    %b = arith.sitofp %a : i32 to f32
    linalg.yield %b : f32
  } -> tensor<64x16xf32>
  %e = tensor.empty() : tensor<1x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16xf32>) -> tensor<1x16xf32>
  %c = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %3 : tensor<1x64xf32>, tensor<64x16xf32>) outs(%f : tensor<1x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<1x16xf32>
  return %c : tensor<1x16xf32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(b, i, n) -> (b, i, n)>
#block = affine_map<(b, i, n) -> (b, n)>

// The products of blocks of 8 steps would take as long to be added up as the weights to be read.
// CHECK-LABEL: func.func @main(
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<1x64xf32>, tensor<64x32xf32>)
func.func @main(%x: tensor<1x64xf32> {tilewright.name = "x", tilewright.role = "input"}, %w: tensor<8x8x32xi8> {tilewright.name = "w", tilewright.role = "weight"}, %s: tensor<8x32xf32> {tilewright.name = "s", tilewright.role = "weight"}) -> tensor<1x32xf32> {
  %zero = arith.constant 0.0 : f32
  %ef = tensor.empty() : tensor<8x8x32xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%w : tensor<8x8x32xi8>) outs(%ef : tensor<8x8x32xf32>) {
  ^bb0(%a: i8, %o: f32):
    %b = arith.sitofp %a : i8 to f32
    linalg.yield %b : f32
  } -> tensor<8x8x32xf32>
  %2 = linalg.generic {indexing_maps = [#id, #block, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %s : tensor<8x8x32xf32>, tensor<8x32xf32>) outs(%ef : tensor<8x8x32xf32>) {
  ^bb0(%a: f32, %p: f32, %o: f32):
    %b = arith.mulf %a, %p : f32
    linalg.yield %b : f32
  } -> tensor<8x8x32xf32>
  %3 = tensor.collapse_shape %2 [[0, 1], [2]] : tensor<8x8x32xf32> into tensor<64x32xf32>
  %e = tensor.empty() : tensor<1x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x32xf32>) -> tensor<1x32xf32>
  %c = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %3 : tensor<1x64xf32>, tensor<64x32xf32>) outs(%f : tensor<1x32xf32>) {
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

// Products of bf16 are computed in f32, and read f32 rows, where they have half as many rows as those of f32; three are too many.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x64xbf16>
// CHECK-SAME: %[[Y:[a-z0-9]+]]: tensor<3x64xbf16>
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<64x32xi8>
// CHECK: %[[WIDE:.+]] = linalg.generic {{.+}} ins(%[[X]] : tensor<2x64xbf16>) outs(%{{.+}} : tensor<2x64xf32>)
// CHECK: linalg.generic {{.+}} ins(%[[WIDE]], %[[W]] : tensor<2x64xf32>, tensor<64x32xi8>)
// CHECK: linalg.generic {{.+}} ins(%[[Y]], %{{.+}} : tensor<3x64xbf16>, tensor<64x32xbf16>)
func.func @main(%x: tensor<2x64xbf16> {tilewright.name = "x", tilewright.role = "input"}, %y: tensor<3x64xbf16> {tilewright.name = "y", tilewright.role = "input"}, %w: tensor<64x32xi8> {tilewright.name = "w", tilewright.role = "weight"}) -> (tensor<2x32xf32>, tensor<3x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %ef = tensor.empty() : tensor<64x32xbf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x32xi8>) outs(%ef : tensor<64x32xbf16>) {
  ^bb0(%a: i8, %o: bf16):
    %b = arith.sitofp %a : i8 to bf16
    linalg.yield %b : bf16
  } -> tensor<64x32xbf16>
  %e2 = tensor.empty() : tensor<2x32xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x32xf32>) -> tensor<2x32xf32>
  %c2 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %1 : tensor<2x64xbf16>, tensor<64x32xbf16>) outs(%f2 : tensor<2x32xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %aw = arith.extf %a : bf16 to f32
    %bw = arith.extf %b : bf16 to f32
    %p = arith.mulf %aw, %bw : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<2x32xf32>
  %e3 = tensor.empty() : tensor<3x32xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<3x32xf32>) -> tensor<3x32xf32>
  %c3 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]} ins(%y, %1 : tensor<3x64xbf16>, tensor<64x32xbf16>) outs(%f3 : tensor<3x32xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %aw = arith.extf %a : bf16 to f32
    %bw = arith.extf %b : bf16 to f32
    %p = arith.mulf %aw, %bw : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<3x32xf32>
  return %c2, %c3 : tensor<2x32xf32>, tensor<3x32xf32>
}
