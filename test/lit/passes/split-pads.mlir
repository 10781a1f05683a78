// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(split-pads),canonicalize,cse)' | filecheck %s

// Padding along one dimension: filled on either side, copied in between.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:.+]]: memref<4x6xf32>, %[[P:.+]]: memref<4x9xf32>, %[[C:.+]]: f32
// CHECK: %[[LOW:.+]] = memref.subview %[[P]][0, 0] [4, 1] [1, 1]
// CHECK: linalg.fill ins(%[[C]] : f32) outs(%[[LOW]]
// CHECK: %[[HIGH:.+]] = memref.subview %[[P]][0, 7] [4, 2] [1, 1]
// CHECK: linalg.fill ins(%[[C]] : f32) outs(%[[HIGH]]
// CHECK: %[[INSIDE:.+]] = memref.subview %[[P]][0, 1] [4, 6] [1, 1]
// CHECK: linalg.generic {{.*}} ins(%{{.+}} : memref<4x6xf32{{.*}}) outs(%[[INSIDE]]
// CHECK-NOT: arith.select
func.func @rows(%x: memref<4x6xf32>, %p: memref<4x9xf32>, %c: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%p : memref<4x9xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %at = arith.subi %j, %c1 : index
    %near = arith.minsi %at, %c5 : index
    %there = arith.maxsi %near, %c0 : index
    %in = arith.cmpi eq, %there, %at : index
    %v = memref.load %x[%i, %there] : memref<4x6xf32>
    %r = arith.select %in, %v, %c : f32
    linalg.yield %r : f32
  }
  return
}

// Rows that a cut moves are inside or not as the rTask has it; what lies in another order is copied in that.
// CHECK-LABEL: func.func @cut(
// CHECK-SAME: %[[X:.+]]: memref<16x14x6xf32>, %[[P:.+]]: memref<5x6x16xf32>, %[[C:.+]]: f32, %[[AT:.+]]: index
// CHECK: scf.for %[[ROW:.+]] =
// CHECK: %[[THERE:.+]] = affine.apply {{.*}}(%[[ROW]])[%[[AT]]]
// CHECK: %[[IN:.+]] = arith.cmpi ult, %[[THERE]], %c14
// CHECK: scf.if %[[IN]]
// CHECK: %[[FROM:.+]] = memref.subview %[[X]][0, %[[THERE]], 0] [16, 1, 6]
// CHECK: %[[TO:.+]] = memref.subview %[[P]][%[[ROW]], 0, 0] [1, 6, 16]
// CHECK: linalg.generic {{.*}} ins(%[[FROM]] : {{.*}}) outs(%[[TO]]
// CHECK: } else {
// CHECK: linalg.fill ins(%[[C]] : f32)
func.func @cut(%x: memref<16x14x6xf32>, %p: memref<5x6x16xf32>, %c: f32, %at: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c13 = arith.constant 13 : index
  linalg.generic {indexing_maps = [affine_map<(h, w, c) -> (h, w, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%p : memref<5x6x16xf32>) {
  ^bb0(%out: f32):
    %h = linalg.index 0 : index
    %w = linalg.index 1 : index
    %k = linalg.index 2 : index
    %moved = affine.apply affine_map<(d0)[s0] -> (d0 * 4 + s0)>(%at)[%h]
    %low = arith.subi %moved, %c1 : index
    %near = arith.minsi %low, %c13 : index
    %there = arith.maxsi %near, %c0 : index
    %in = arith.cmpi eq, %there, %low : index
    %v = memref.load %x[%k, %there, %w] : memref<16x14x6xf32>
    %r = arith.select %in, %v, %c : f32
    linalg.yield %r : f32
  }
  return
}

// What is read twice as fast as it is written is a gather of another kind.
// CHECK-LABEL: func.func @strided(
// CHECK: arith.select
func.func @strided(%x: memref<6xf32>, %p: memref<5xf32>, %c: f32) {
  %c0 = arith.constant 0 : index
  %c5 = arith.constant 5 : index
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%p : memref<5xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %at = affine.apply affine_map<(d0) -> (d0 * 2 - 1)>(%i)
    %near = arith.minsi %at, %c5 : index
    %there = arith.maxsi %near, %c0 : index
    %in = arith.cmpi eq, %there, %at : index
    %v = memref.load %x[%there] : memref<6xf32>
    %r = arith.select %in, %v, %c : f32
    linalg.yield %r : f32
  }
  return
}

// Clamped to the edge without a test: edges are repeated, not padded by a constant.
// CHECK-LABEL: func.func @edges(
// CHECK: memref.load
func.func @edges(%x: memref<6xf32>, %p: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%p : memref<8xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %at = arith.subi %i, %c1 : index
    %near = arith.minsi %at, %c5 : index
    %there = arith.maxsi %near, %c0 : index
    %v = memref.load %x[%there] : memref<6xf32>
    linalg.yield %v : f32
  }
  return
}

// What checks its one input, and writes nothing, pads nothing.
// CHECK-LABEL: func.func @checked(
// CHECK: linalg.generic {{.*}} ins(%{{.+}} : memref<4xi64>)
// CHECK: cf.assert
func.func @checked(%at: memref<4xi64>) {
  %c9 = arith.constant 9 : i64
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%at : memref<4xi64>) {
  ^bb0(%in: i64):
    %valid = arith.cmpi slt, %in, %c9 : i64
    cf.assert %valid, "index"
    linalg.yield
  }
  return
}
