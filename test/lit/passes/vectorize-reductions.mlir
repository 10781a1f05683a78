// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-reductions),canonicalize)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-reductions{vector-bits=256 registers=16}))' | filecheck %s --check-prefix=AVX2

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#transposed = affine_map<(d0, d1, d2) -> (d1, d2)>
#packed = affine_map<(d0, d1, d2) -> (d1 floordiv 8, d2, d1 mod 8)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>

// Columns 0..8 in vectors of 4 and 8..10 in one of 2, rows in pairs with the fifth alone. Accumulators start from the
// fill in registers, and B is loaded once for both rows.
// CHECK-LABEL: func.func @matmul
// CHECK-NOT: linalg
// CHECK: %[[START:.+]] = arith.constant dense<0.000000e+00> : vector<4xf32>
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args(%[[ACC0:.+]] = %[[START]], %[[ACC1:.+]] = %[[START]]) -> (vector<4xf32>, vector<4xf32>)
// CHECK: %[[A0:.+]] = vector.broadcast
// CHECK: %[[B:.+]] = vector.load %arg1[%{{.+}}, %{{.+}}] : memref<8x10xf32>, vector<4xf32>
// CHECK: %[[P0:.+]] = arith.mulf %[[A0]], %[[B]] fastmath<contract>
// CHECK: arith.addf %[[ACC0]], %[[P0]] fastmath<contract>
// CHECK-NOT: vector.load
// CHECK: %[[P1:.+]] = arith.mulf %{{.+}}, %[[B]]
// CHECK: arith.addf %[[ACC1]], %[[P1]]
// CHECK: vector.store {{.*}} : memref<5x10xf32>, vector<4xf32>
// CHECK: vector.store {{.*}} : memref<5x10xf32>, vector<4xf32>
// CHECK: scf.for {{.*}} -> (vector<4xf32>) {
// CHECK: scf.for {{.*}} -> (vector<2xf32>, vector<2xf32>)
// CHECK: scf.for {{.*}} -> (vector<2xf32>) {
func.func @matmul(%a: memref<5x8xf32>, %b: memref<8x10xf32>, %c: memref<5x10xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<5x10xf32>)
  linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<5x8xf32>, memref<8x10xf32>) outs(%c : memref<5x10xf32>) attrs = {tilewright.loops = {products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Without a fill the accumulator is loaded; any arithmetic on numbers will do.
// CHECK-LABEL: func.func @column_maximum
// CHECK: %[[START:.+]] = vector.load %arg1
// CHECK: scf.for {{.*}} iter_args(%[[ACC:.+]] = %[[START]])
// CHECK: arith.maximumf %[[ACC]], %{{.+}} : vector<16xf32>
// AVX2-LABEL: func.func @column_maximum
// AVX2-COUNT-2: arith.maximumf {{.*}} : vector<8xf32>
// AVX2-LABEL: func.func @packed_weights
func.func @column_maximum(%a: memref<8x16xf32>, %c: memref<16xf32>) {
  linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%a : memref<8x16xf32>) outs(%c : memref<16xf32>) attrs = {tilewright.loops = {products = [1, 16]}} {
  ^bb0(%x: f32, %o: f32):
    %s = arith.maximumf %o, %x : f32
    linalg.yield %s : f32
  }
  return
}

// Packed weights are contiguous along the vector inside of a block.
// CHECK-LABEL: func.func @packed_weights
// CHECK-NOT: linalg
// CHECK: vector.load %arg1[%{{.+}}, %{{.+}}, %{{.+}}] : memref<2x8x8xf32>, vector<4xf32>
func.func @packed_weights(%a: memref<4x8xf32>, %b: memref<2x8x8xf32>, %c: memref<4x16xf32>) {
  linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xf32>, memref<2x8x8xf32>) outs(%c : memref<4x16xf32>) attrs = {tilewright.loops = {products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// 64 bytes further on lie two steps of a block of 8: half of a line for each tile of four columns.
// CHECK-LABEL: func.func @fetched_ahead
// CHECK: scf.for %[[K:[a-z0-9]+]] = {{.*}} -> (vector<4xf32>, vector<4xf32>)
// CHECK: %[[AHEAD:.+]] = affine.apply #{{.+}}(%[[K]])
// CHECK: memref.prefetch %arg1[%{{.+}}, %[[AHEAD]], %{{.+}}], read, locality<2>, data : memref<2x8x8xf32>
// CHECK-NOT: memref.prefetch
// CHECK: vector.load %arg1[%{{.+}}, %[[K]], %{{.+}}] : memref<2x8x8xf32>, vector<4xf32>
func.func @fetched_ahead(%a: memref<4x8xf32>, %b: memref<2x8x8xf32>, %c: memref<4x16xf32>) {
  linalg.generic {indexing_maps = [#left, #packed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<4x8xf32>, memref<2x8x8xf32>) outs(%c : memref<4x16xf32>)
      attrs = {tilewright.loops = {products = [2, 4]}, tilewright.prefetch = 64 : i64} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// The reduction itself is contiguous: vectors run along it, and four of partial sums are added up at once. The last
// vector is moved back to fit, without the twelve terms of row t that were counted before.
// CHECK-LABEL: func.func @row_sum
// CHECK-NOT: linalg
// CHECK-DAG: %[[NEW:.+]] = arith.constant dense<[false, false, false, {{.*}}, true, true, true, true]> : vector<16xi1>
// CHECK-DAG: %[[NOTHING:.+]] = arith.constant dense<-0.000000e+00> : vector<16xf32>
// CHECK: scf.for {{.*}} step %c4
// CHECK: vector.load %arg0[%{{.+}}, %c0] : memref<8x20xf32>, vector<16xf32>
// CHECK: vector.load %arg0[%{{.+}}, %c4] : memref<8x20xf32>, vector<16xf32>
// CHECK: arith.select %[[NEW]], %{{.+}}, %[[NOTHING]] : vector<16xi1>, vector<16xf32>
// CHECK: vector.shuffle {{.*}} [0, 16, 2, 18,
// CHECK: vector.shuffle {{.*}} [1, 17, 3, 19,
// CHECK: %[[SUMS:.+]] = arith.addf {{.*}} : vector<4xf32>
// CHECK: %[[START:.+]] = vector.load %arg1[%{{.+}}] : memref<8xf32>, vector<4xf32>
// CHECK: arith.addf %[[START]], %[[SUMS]]
// CHECK: vector.store {{.*}} : memref<8xf32>, vector<4xf32>
func.func @row_sum(%a: memref<8x20xf32>, %c: memref<8xf32>) {
  linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<8x20xf32>) outs(%c : memref<8xf32>) attrs = {tilewright.loops = {along = [4, 1, 1]}} {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %o, %x : f32
    linalg.yield %s : f32
  }
  return
}

// Both operands are contiguous along the reduction: 2 x 4 results share six loads, and each row starts from the fill.
// CHECK-LABEL: func.func @product_with_rows
// CHECK-NOT: linalg
// CHECK: scf.for {{.*}} -> (vector<16xf32>, {{.*}}) {
// CHECK: vector.load %arg0[%c0
// CHECK: vector.load %arg1
// CHECK: vector.store {{.*}} : memref<2x4xf32>, vector<4xf32>
// CHECK: vector.store {{.*}} : memref<2x4xf32>, vector<4xf32>
func.func @product_with_rows(%a: memref<2x64xf32>, %b: memref<4x64xf32>, %c: memref<2x4xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<2x4xf32>)
  linalg.generic {indexing_maps = [#left, #transposed, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<2x64xf32>, memref<4x64xf32>) outs(%c : memref<2x4xf32>) attrs = {tilewright.loops = {along = [2, 4, 1]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Differences may not be regrouped: scalar loops, as it is marked.
// CHECK-LABEL: func.func @alternating
// CHECK: linalg.generic
func.func @alternating(%a: memref<8x16xf32>, %c: memref<8xf32>) {
  linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<8x16xf32>) outs(%c : memref<8xf32>) attrs = {tilewright.loops = {scalar = []}} {
  ^bb0(%x: f32, %o: f32):
    %s = arith.subf %x, %o : f32
    linalg.yield %s : f32
  }
  return
}

// Vectors of booleans are not what lies in memory.
// CHECK-LABEL: func.func @booleans
// CHECK: linalg.generic
func.func @booleans(%a: memref<8x16xi1>, %c: memref<16xi1>) {
  linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%a : memref<8x16xi1>) outs(%c : memref<16xi1>) {
  ^bb0(%x: i1, %o: i1):
    %s = arith.ori %o, %x : i1
    linalg.yield %s : i1
  }
  return
}

// Columns are not contiguous here.
// CHECK-LABEL: func.func @strided
// CHECK: linalg.generic
func.func @strided(%a: memref<8x16xf32, strided<[32, 2]>>, %c: memref<16xf32>) {
  linalg.generic {indexing_maps = [#id, #columns], iterator_types = ["reduction", "parallel"]}
      ins(%a : memref<8x16xf32, strided<[32, 2]>>) outs(%c : memref<16xf32>) {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %o, %x : f32
    linalg.yield %s : f32
  }
  return
}

// A relu behind the product is computed on the accumulators; an exponential, many instructions for every one of
// them, stays a loop of its own.
// CHECK-LABEL: func.func @epilogue
// CHECK-NOT: linalg
// CHECK: %[[R:.+]] = arith.maximumf {{.*}} : vector<{{[0-9]+}}xf32>
// CHECK: vector.store %{{.+}}, %arg2
// CHECK-NOT: vector.store %{{.+}}, %alloc
// CHECK: return
func.func @epilogue(%a: memref<8x24xf32>, %b: memref<24x32xf32>, %c: memref<8x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<8x32xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<8x32xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<8x24xf32>, memref<24x32xf32>) outs(%t : memref<8x32xf32>) attrs = {tilewright.loops = {products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : memref<8x32xf32>) outs(%c : memref<8x32xf32>) {
  ^bb0(%x: f32, %o: f32):
    %m = arith.maximumf %x, %zero : f32
    linalg.yield %m : f32
  }
  return
}

// CHECK-LABEL: func.func @long_epilogue
// CHECK: vector.store %{{.+}}, %alloc
// CHECK: linalg.generic
// CHECK: math.exp
func.func @long_epilogue(%a: memref<8x24xf32>, %b: memref<24x32xf32>, %c: memref<8x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<8x32xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<8x32xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<8x24xf32>, memref<24x32xf32>) outs(%t : memref<8x32xf32>) attrs = {tilewright.loops = {products = [2, 4]}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : memref<8x32xf32>) outs(%c : memref<8x32xf32>) {
  ^bb0(%x: f32, %o: f32):
    %m = math.exp %x : f32
    linalg.yield %m : f32
  }
  return
}

#wide = affine_map<(h, w, g, o, k, c) -> (h, w + k, g, c)>
#side_by_side = affine_map<(h, w, g, o, k, c) -> (g floordiv 4, k, c, g mod 4, o)>
#groups = affine_map<(h, w, g, o, k, c) -> (h, w, g, o)>

// Two channels of four groups, in and out: a vector of eight, spread for one channel at a time. The two steps of a row
// share the columns in the middle: four are loaded for each channel, not six.
// CHECK-LABEL: func.func @few_channels_per_group
// CHECK-NOT: linalg
// CHECK: %[[X:.+]] = memref.collapse_shape %arg0 {{\[\[}}0], [1], [2, 3]] : memref<5x4x8x2xf32> into memref<5x4x16xf32>
// CHECK: vector.load %{{.+}} : memref<2x3x2x8xf32>, vector<8xf32>
// CHECK: %[[COLUMN:.+]] = vector.load %[[X]]
// CHECK: vector.shuffle %[[COLUMN]], %{{.+}} [0, 0, 2, 2, 4, 4, 6, 6]
// CHECK-COUNT-3: vector.load %[[X]]
// CHECK: vector.load %{{.+}} : memref<2x3x2x8xf32>, vector<8xf32>
// CHECK: vector.shuffle {{.*}} [1, 1, 3, 3, 5, 5, 7, 7]
// CHECK: vector.store {{.*}} : memref<5x2x16xf32>, vector<8xf32>
func.func @few_channels_per_group(%x: memref<5x4x8x2xf32>, %w: memref<2x3x2x4x2xf32>, %y: memref<5x2x8x2xf32>) {
  linalg.generic {indexing_maps = [#wide, #side_by_side, #groups], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : memref<5x4x8x2xf32>, memref<2x3x2x4x2xf32>) outs(%y : memref<5x2x8x2xf32>) attrs = {tilewright.loops = {groups = [5]}} {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
