// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-attention,canonicalize)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-attention{keep-narrow=true},canonicalize)' | filecheck %s --check-prefix=NARROW

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-DAG: #[[Q:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1 * 16 + d4)>
// CHECK-DAG: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1 * 16 + d4 + 32)>
// CHECK-DAG: #[[V:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1 * 16 + d5 + 64)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1 * 16 + d5)>

// Queries, keys and values are read out of the projection, the result is written with its heads side by side; the
// loop over batches and heads is split in two. The mask bounds the keys that a query sees.
// CHECK-LABEL: func.func @causal
// CHECK-NOT: linalg
// CHECK: %[[R:.+]] = "tilewright.attention"(%arg0, %arg0, %arg0)
// CHECK: ^bb0(%[[S:.+]]: f32, %[[ROW:.+]]: index, %[[COLUMN:.+]]: index):
// CHECK: %[[SEES:.+]] = arith.cmpi sle, %[[COLUMN]], %[[ROW]] : index
// CHECK: %[[MASKED:.+]] = arith.select %[[SEES]], %{{.+}}, %{{.+}} : f32
// CHECK: "tilewright.yield"(%[[MASKED]])
// CHECK: causal = 0 : i64, indexing_maps = [#[[Q]], #[[K]], #[[V]], #[[OUT]]], loops = [2, 2, 40, 40, 16, 16]
// CHECK: -> tensor<2x40x32xf32>
// CHECK-NOT: linalg
// CHECK: return %[[R]]
func.func @causal(%x: tensor<2x40x96xf32>) -> tensor<2x40x32xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %e = tensor.expand_shape %x [[0], [1], [2, 3, 4]] output_shape [2, 40, 3, 2, 16] : tensor<2x40x96xf32> into tensor<2x40x3x2x16xf32>
  %te = tensor.empty() : tensor<3x2x2x40x16xf32>
  %t = linalg.transpose ins(%e : tensor<2x40x3x2x16xf32>) outs(%te : tensor<3x2x2x40x16xf32>) permutation = [2, 0, 3, 1, 4]
  %q0 = tensor.extract_slice %t[0, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %k0 = tensor.extract_slice %t[1, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %v0 = tensor.extract_slice %t[2, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %q = tensor.collapse_shape %q0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %k1 = tensor.collapse_shape %k0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %v = tensor.collapse_shape %v0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %ke = tensor.empty() : tensor<4x16x40xf32>
  %k = linalg.transpose ins(%k1 : tensor<4x40x16xf32>) outs(%ke : tensor<4x16x40xf32>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<4x40x40xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<4x40x16xf32>, tensor<4x16x40xf32>) outs(%sz : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<4x40x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %row = linalg.index 1 : index
    %column = linalg.index 2 : index
    %sees = arith.cmpi sle, %column, %row : index
    %scaled = arith.mulf %in, %scale : f32
    %r = arith.select %sees, %scaled, %low : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %me = tensor.empty() : tensor<4x40xf32>
  %mi = linalg.fill ins(%low : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<4x40x40xf32>) outs(%mi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %top : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %t0: f32, %o: f32):
    %d = arith.subf %in, %t0 : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %zi = linalg.fill ins(%zero : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<4x40x40xf32>) outs(%zi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %sum : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %t0: f32, %o: f32):
    %r = arith.divf %in, %t0 : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %oe = tensor.empty() : tensor<4x40x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<4x40x40xf32>, tensor<4x40x16xf32>) outs(%oz : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %ox = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [2, 2, 40, 16] : tensor<4x40x16xf32> into tensor<2x2x40x16xf32>
  %oxe = tensor.empty() : tensor<2x40x2x16xf32>
  %ot = linalg.transpose ins(%ox : tensor<2x2x40x16xf32>) outs(%oxe : tensor<2x40x2x16xf32>) permutation = [0, 2, 1, 3]
  %r = tensor.collapse_shape %ot [[0], [1], [2, 3]] : tensor<2x40x2x16xf32> into tensor<2x40x32xf32>
  return %r : tensor<2x40x32xf32>
}

// The numbers summed are not those divided: no softmax.
// CHECK-LABEL: func.func @sums_others
// CHECK-NOT: tilewright.attention
// CHECK: return
func.func @sums_others(%x: tensor<2x40x96xf32>) -> tensor<2x40x32xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %e = tensor.expand_shape %x [[0], [1], [2, 3, 4]] output_shape [2, 40, 3, 2, 16] : tensor<2x40x96xf32> into tensor<2x40x3x2x16xf32>
  %te = tensor.empty() : tensor<3x2x2x40x16xf32>
  %t = linalg.transpose ins(%e : tensor<2x40x3x2x16xf32>) outs(%te : tensor<3x2x2x40x16xf32>) permutation = [2, 0, 3, 1, 4]
  %q0 = tensor.extract_slice %t[0, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %k0 = tensor.extract_slice %t[1, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %v0 = tensor.extract_slice %t[2, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %q = tensor.collapse_shape %q0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %k1 = tensor.collapse_shape %k0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %v = tensor.collapse_shape %v0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %ke = tensor.empty() : tensor<4x16x40xf32>
  %k = linalg.transpose ins(%k1 : tensor<4x40x16xf32>) outs(%ke : tensor<4x16x40xf32>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<4x40x40xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<4x40x16xf32>, tensor<4x16x40xf32>) outs(%sz : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<4x40x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %row = linalg.index 1 : index
    %column = linalg.index 2 : index
    %sees = arith.cmpi sle, %column, %row : index
    %scaled = arith.mulf %in, %scale : f32
    %r = arith.select %sees, %scaled, %low : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %me = tensor.empty() : tensor<4x40xf32>
  %mi = linalg.fill ins(%low : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<4x40x40xf32>) outs(%mi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %top : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %t0: f32, %o: f32):
    %d = arith.subf %in, %t0 : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %zi = linalg.fill ins(%zero : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<4x40x40xf32>) outs(%zi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %sum : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %t0: f32, %o: f32):
    %r = arith.divf %in, %t0 : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %oe = tensor.empty() : tensor<4x40x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<4x40x40xf32>, tensor<4x40x16xf32>) outs(%oz : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %ox = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [2, 2, 40, 16] : tensor<4x40x16xf32> into tensor<2x2x40x16xf32>
  %oxe = tensor.empty() : tensor<2x40x2x16xf32>
  %ot = linalg.transpose ins(%ox : tensor<2x2x40x16xf32>) outs(%oxe : tensor<2x40x2x16xf32>) permutation = [0, 2, 1, 3]
  %r = tensor.collapse_shape %ot [[0], [1], [2, 3]] : tensor<2x40x2x16xf32> into tensor<2x40x32xf32>
  return %r : tensor<2x40x32xf32>
}

// The weights are wanted too: fused, they would be computed twice.
// CHECK-LABEL: func.func @weights_are_read
// CHECK-NOT: tilewright.attention
// CHECK: return
func.func @weights_are_read(%x: tensor<2x40x96xf32>) -> (tensor<2x40x32xf32>, tensor<4x40x40xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %e = tensor.expand_shape %x [[0], [1], [2, 3, 4]] output_shape [2, 40, 3, 2, 16] : tensor<2x40x96xf32> into tensor<2x40x3x2x16xf32>
  %te = tensor.empty() : tensor<3x2x2x40x16xf32>
  %t = linalg.transpose ins(%e : tensor<2x40x3x2x16xf32>) outs(%te : tensor<3x2x2x40x16xf32>) permutation = [2, 0, 3, 1, 4]
  %q0 = tensor.extract_slice %t[0, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %k0 = tensor.extract_slice %t[1, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %v0 = tensor.extract_slice %t[2, 0, 0, 0, 0] [1, 2, 2, 40, 16] [1, 1, 1, 1, 1] : tensor<3x2x2x40x16xf32> to tensor<2x2x40x16xf32>
  %q = tensor.collapse_shape %q0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %k1 = tensor.collapse_shape %k0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %v = tensor.collapse_shape %v0 [[0, 1], [2], [3]] : tensor<2x2x40x16xf32> into tensor<4x40x16xf32>
  %ke = tensor.empty() : tensor<4x16x40xf32>
  %k = linalg.transpose ins(%k1 : tensor<4x40x16xf32>) outs(%ke : tensor<4x16x40xf32>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<4x40x40xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<4x40x16xf32>, tensor<4x16x40xf32>) outs(%sz : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<4x40x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %row = linalg.index 1 : index
    %column = linalg.index 2 : index
    %sees = arith.cmpi sle, %column, %row : index
    %scaled = arith.mulf %in, %scale : f32
    %r = arith.select %sees, %scaled, %low : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %me = tensor.empty() : tensor<4x40xf32>
  %mi = linalg.fill ins(%low : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<4x40x40xf32>) outs(%mi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %top : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %t0: f32, %o: f32):
    %d = arith.subf %in, %t0 : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %zi = linalg.fill ins(%zero : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<4x40x40xf32>) outs(%zi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %sum : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %t0: f32, %o: f32):
    %r = arith.divf %in, %t0 : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %oe = tensor.empty() : tensor<4x40x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<4x40x40xf32>, tensor<4x40x16xf32>) outs(%oz : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %ox = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [2, 2, 40, 16] : tensor<4x40x16xf32> into tensor<2x2x40x16xf32>
  %oxe = tensor.empty() : tensor<2x40x2x16xf32>
  %ot = linalg.transpose ins(%ox : tensor<2x2x40x16xf32>) outs(%oxe : tensor<2x40x2x16xf32>) permutation = [0, 2, 1, 3]
  %r = tensor.collapse_shape %ot [[0], [1], [2, 3]] : tensor<2x40x2x16xf32> into tensor<2x40x32xf32>
  return %r, %w : tensor<2x40x32xf32>, tensor<4x40x40xf32>
}

// One vector of queries would be nearly empty.
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-attention{min-rows=41})' | filecheck %s --check-prefix=FEW
// FEW-NOT: tilewright.attention

// Operands of 16 bits are widened for a CPU, and read as they lie where that is asked for; so is the result written.
// CHECK-LABEL: func.func @half
// CHECK: arith.extf
// CHECK: "tilewright.attention"
// CHECK: tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
// CHECK: arith.truncf
// NARROW-LABEL: func.func @half
// NARROW-NOT: arith.extf
// NARROW: "tilewright.attention"(%arg0, %arg1, %arg2)
// NARROW: ^bb0(%{{.+}}: f32, %{{.+}}: index, %{{.+}}: index):
// NARROW: (tensor<4x40x16xf16>, tensor<4x40x16xf16>, tensor<4x40x16xf16>) -> tensor<4x40x16xf16>
// NARROW-NOT: arith.truncf
func.func @half(%q0: tensor<4x40x16xf16>, %k0: tensor<4x40x16xf16>, %v0: tensor<4x40x16xf16>) -> tensor<4x40x16xf16> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %we = tensor.empty() : tensor<4x40x16xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q0 : tensor<4x40x16xf16>) outs(%we : tensor<4x40x16xf32>) {
  ^bb0(%in: f16, %o: f32):
    %r = arith.extf %in : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4x40x16xf32>
  %k = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k0 : tensor<4x40x16xf16>) outs(%we : tensor<4x40x16xf32>) {
  ^bb0(%in: f16, %o: f32):
    %r = arith.extf %in : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4x40x16xf32>
  %v = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v0 : tensor<4x40x16xf16>) outs(%we : tensor<4x40x16xf32>) {
  ^bb0(%in: f16, %o: f32):
    %r = arith.extf %in : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4x40x16xf32>
  %te = tensor.empty() : tensor<4x16x40xf32>
  %t = linalg.transpose ins(%k : tensor<4x40x16xf32>) outs(%te : tensor<4x16x40xf32>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<4x40x40xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %s = linalg.batch_matmul ins(%q, %t : tensor<4x40x16xf32>, tensor<4x16x40xf32>) outs(%sz : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %me = tensor.empty() : tensor<4x40xf32>
  %mi = linalg.fill ins(%low : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<4x40x40xf32>) outs(%mi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %top : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %x: f32, %o: f32):
    %d = arith.subf %in, %x : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %ui = linalg.fill ins(%zero : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %u = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<4x40x40xf32>) outs(%ui : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %u : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %x: f32, %o: f32):
    %r = arith.divf %in, %x : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %oe = tensor.empty() : tensor<4x40x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<4x40x40xf32>, tensor<4x40x16xf32>) outs(%oz : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %ne = tensor.empty() : tensor<4x40x16xf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%o : tensor<4x40x16xf32>) outs(%ne : tensor<4x40x16xf16>) {
  ^bb0(%in: f32, %x: f16):
    %r = arith.truncf %in : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4x40x16xf16>
  return %n : tensor<4x40x16xf16>
}

// Queries alone in 16 bits stay widened.
// NARROW-LABEL: func.func @mixed
// NARROW: arith.extf
// NARROW: "tilewright.attention"
// NARROW: tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
func.func @mixed(%q0: tensor<4x40x16xf16>, %k0: tensor<4x40x16xf32>, %v0: tensor<4x40x16xf32>) -> tensor<4x40x16xf16> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %we = tensor.empty() : tensor<4x40x16xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q0 : tensor<4x40x16xf16>) outs(%we : tensor<4x40x16xf32>) {
  ^bb0(%in: f16, %o: f32):
    %r = arith.extf %in : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4x40x16xf32>
  %k = tensor.cast %k0 : tensor<4x40x16xf32> to tensor<4x40x16xf32>
  %v = tensor.cast %v0 : tensor<4x40x16xf32> to tensor<4x40x16xf32>
  %te = tensor.empty() : tensor<4x16x40xf32>
  %t = linalg.transpose ins(%k : tensor<4x40x16xf32>) outs(%te : tensor<4x16x40xf32>) permutation = [0, 2, 1]
  %se = tensor.empty() : tensor<4x40x40xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %s = linalg.batch_matmul ins(%q, %t : tensor<4x40x16xf32>, tensor<4x16x40xf32>) outs(%sz : tensor<4x40x40xf32>) -> tensor<4x40x40xf32>
  %me = tensor.empty() : tensor<4x40xf32>
  %mi = linalg.fill ins(%low : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<4x40x40xf32>) outs(%mi : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.maximumf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %top : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %x: f32, %o: f32):
    %d = arith.subf %in, %x : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %ui = linalg.fill ins(%zero : f32) outs(%me : tensor<4x40xf32>) -> tensor<4x40xf32>
  %u = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<4x40x40xf32>) outs(%ui : tensor<4x40xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<4x40xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %u : tensor<4x40x40xf32>, tensor<4x40xf32>) outs(%se : tensor<4x40x40xf32>) {
  ^bb0(%in: f32, %x: f32, %o: f32):
    %r = arith.divf %in, %x : f32
    linalg.yield %r : f32
  } -> tensor<4x40x40xf32>
  %oe = tensor.empty() : tensor<4x40x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %o = linalg.batch_matmul ins(%w, %v : tensor<4x40x40xf32>, tensor<4x40x16xf32>) outs(%oz : tensor<4x40x16xf32>) -> tensor<4x40x16xf32>
  %ne = tensor.empty() : tensor<4x40x16xf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%o : tensor<4x40x16xf32>) outs(%ne : tensor<4x40x16xf16>) {
  ^bb0(%in: f32, %x: f16):
    %r = arith.truncf %in : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4x40x16xf16>
  return %n : tensor<4x40x16xf16>
}
