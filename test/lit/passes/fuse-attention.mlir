// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fuse-attention,canonicalize)' | filecheck %s

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
