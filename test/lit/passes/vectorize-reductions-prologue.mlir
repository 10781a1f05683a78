// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-reductions))' | filecheck %s

// What is summed right after it was computed, element by element, is computed as it is summed, and stored once.
// CHECK-LABEL: func.func @exponentials(
// CHECK-SAME: %[[X:.+]]: memref<4x64xf32>, %[[M:.+]]: memref<4xf32>, %[[E:.+]]: memref<4x64xf32>
// CHECK: scf.for
// CHECK: vector.load %[[X]]
// CHECK: memref.load %[[M]]
// CHECK: %[[V:.+]] = math.exp %{{.+}} : vector<16xf32>
// CHECK: vector.store %[[V]], %[[E]]
// CHECK-NOT: vector.load %[[E]]
// CHECK-NOT: linalg.generic
func.func @exponentials(%x: memref<4x64xf32>, %m: memref<4xf32>, %e: memref<4x64xf32>, %s: memref<4xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %m : memref<4x64xf32>, memref<4xf32>) outs(%e : memref<4x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %d = arith.subf %a, %b : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<4xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%e : memref<4x64xf32>) outs(%s : memref<4xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %out: f32):
    %r = arith.addf %a, %out : f32
    linalg.yield %r : f32
  }
  return
}

// In place: a last vector that overlaps the one before would compute it twice.
// CHECK-LABEL: func.func @in_place(
// CHECK: linalg.generic
// CHECK: math.exp %{{.+}} : f32
// CHECK: vector.load
func.func @in_place(%e: memref<4x70xf32>, %s: memref<4xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%e : memref<4x70xf32>) outs(%e : memref<4x70xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<4xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%e : memref<4x70xf32>) outs(%s : memref<4xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %out: f32):
    %r = arith.addf %a, %out : f32
    linalg.yield %r : f32
  }
  return
}

// Read for every column of another operand: computing it each time would cost more than storing it once.
// CHECK-LABEL: func.func @read_again(
// CHECK: linalg.generic
// CHECK: math.exp %{{.+}} : f32
// CHECK: vector.load
func.func @read_again(%x: memref<4x64xf32>, %w: memref<8x64xf32>, %e: memref<4x64xf32>, %s: memref<4x8xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x64xf32>) outs(%e : memref<4x64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<4x8xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, k, j) -> (i, j)>, affine_map<(i, k, j) -> (k, j)>, affine_map<(i, k, j) -> (i, k)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%e, %w : memref<4x64xf32>, memref<8x64xf32>) outs(%s : memref<4x8xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %p, %out : f32
    linalg.yield %r : f32
  }
  return
}

// One number for all rows has no row to follow.
// CHECK-LABEL: func.func @number(
// CHECK: math.exp %{{.+}} : f32
// CHECK: vector.load
func.func @number(%x: memref<f32>, %w: memref<64xf32>, %e: memref<f32>, %s: memref<f32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%x : memref<f32>) outs(%e : memref<f32>) {
  ^bb0(%a: f32, %out: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<f32>)
  linalg.generic {indexing_maps = [affine_map<(j) -> ()>, affine_map<(j) -> (j)>, affine_map<(j) -> ()>], iterator_types = ["reduction"]} ins(%e, %w : memref<f32>, memref<64xf32>) outs(%s : memref<f32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %p, %out : f32
    linalg.yield %r : f32
  }
  return
}

// Two results at once are computed where they stand.
// CHECK-LABEL: func.func @both(
// CHECK: linalg.generic
// CHECK: math.exp %{{.+}} : f32
// CHECK: vector.load
func.func @both(%x: memref<4x64xf32>, %d: memref<4x64xf32>, %e: memref<4x64xf32>, %s: memref<4xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x64xf32>) outs(%d, %e : memref<4x64xf32>, memref<4x64xf32>) {
  ^bb0(%a: f32, %first: f32, %second: f32):
    %r = math.exp %a : f32
    linalg.yield %a, %r : f32, f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<4xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%e : memref<4x64xf32>) outs(%s : memref<4xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %out: f32):
    %r = arith.addf %a, %out : f32
    linalg.yield %r : f32
  }
  return
}

// Rows that were walked before: the lines that the schedule says, further on in the argument, are asked for meanwhile. What
// all rows share, and what lies in memory of the rTask's own, is not.
// CHECK-LABEL: func.func @fetched_ahead
// CHECK-SAME: %[[X:.+]]: memref<8x64xf32>, %[[G:.+]]: memref<64xf32>
// CHECK: %[[ROW:.+]] = memref.subview %[[X]]
// CHECK: %[[NEXT:.+]] = arith.addi %{{.+}}, %c64
// CHECK: memref.prefetch %[[ROW]][%{{.+}}, %[[NEXT]]], read, locality<2>, data
// CHECK-NOT: memref.prefetch %[[G]]
// CHECK: vector.load %[[ROW]]
// CHECK-NOT: memref.prefetch %alloc
func.func @fetched_ahead(%x: memref<8x64xf32>, %g: memref<64xf32>, %s: memref<1xf32>, %at: index) {
  %row = memref.subview %x[%at, 0] [1, 64] [1, 1] : memref<8x64xf32> to memref<1x64xf32, strided<[64, 1], offset: ?>>
  %e = memref.alloc() : memref<1x64xf32>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%row, %g : memref<1x64xf32, strided<[64, 1], offset: ?>>, memref<64xf32>) outs(%e : memref<1x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%e : memref<1x64xf32>) outs(%s : memref<1xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}, tilewright.prefetch = 256} {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  }
  memref.dealloc %e : memref<1x64xf32>
  return
}

// Columns are multiplied by what the sums of rows are stored over: all of it is read before the first sum is there.
// CHECK-LABEL: func.func @overwritten_columns(
// CHECK: linalg.generic
// CHECK: arith.mulf %{{.+}} : f32
// CHECK: vector.load
func.func @overwritten_columns(%x: memref<64x64xf32>, %e: memref<64x64xf32>, %s: memref<64xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %s : memref<64x64xf32>, memref<64xf32>) outs(%e : memref<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<64xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%e : memref<64x64xf32>) outs(%s : memref<64xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %out: f32):
    %r = arith.addf %a, %out : f32
    linalg.yield %r : f32
  }
  return
}

// A row's own number is read before the sum of the row is stored over it.
// CHECK-LABEL: func.func @overwritten_rows(
// CHECK-NOT: linalg.generic
// CHECK: vector.store
func.func @overwritten_rows(%x: memref<64x64xf32>, %e: memref<64x64xf32>, %s: memref<64xf32>) {
  %c = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %s : memref<64x64xf32>, memref<64xf32>) outs(%e : memref<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  }
  linalg.fill ins(%c : f32) outs(%s : memref<64xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%e : memref<64x64xf32>) outs(%s : memref<64xf32>) attrs = {tilewright.loops = {along = [1, 1, 1]}} {
  ^bb0(%a: f32, %out: f32):
    %r = arith.addf %a, %out : f32
    linalg.yield %r : f32
  }
  return
}
