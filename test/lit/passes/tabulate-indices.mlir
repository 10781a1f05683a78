// RUN: tilewright-opt %s --pass-pipeline='builtin.module(tabulate-indices,canonicalize)' --split-input-file | filecheck %s

// Windows of three at a border, rows and columns: a table of the counts by row and column, which all channels read.
// CHECK-DAG: #[[PLANE:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ALL:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[SHARED:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @mean(
// CHECK: %[[TABLE:.+]] = linalg.generic {indexing_maps = [#[[PLANE]]], iterator_types = ["parallel", "parallel"]}
// CHECK: linalg.index 0
// CHECK: linalg.index 1
// CHECK: %[[N:.+]] = arith.sitofp
// CHECK-NEXT: linalg.yield %[[N]]
// CHECK: linalg.generic {indexing_maps = [#[[ALL]], #[[SHARED]], #[[ALL]]]
// CHECK-SAME: ins(%arg0, %[[TABLE]] : tensor<8x6x7xf32>, tensor<6x7xf32>)
// CHECK-NEXT: ^bb0(%[[SUM:.+]]: f32, %[[COUNT:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: %[[Q:.+]] = arith.divf %[[SUM]], %[[COUNT]]
// CHECK-NEXT: linalg.yield %[[Q]]
func.func @mean(%x: tensor<8x6x7xf32>) -> tensor<8x6x7xf32> {
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %rows = arith.constant 6 : index
  %columns = arith.constant 7 : index
  %e = tensor.empty() : tensor<8x6x7xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(c, h, w) -> (c, h, w)>, affine_map<(c, h, w) -> (c, h, w)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<8x6x7xf32>) outs(%e : tensor<8x6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %h = linalg.index 1 : index
    %h1 = arith.addi %h, %one : index
    %h2 = arith.minsi %h1, %three : index
    %h3 = arith.subi %rows, %h : index
    %h4 = arith.minsi %h2, %h3 : index
    %w = linalg.index 2 : index
    %w1 = arith.addi %w, %one : index
    %w2 = arith.minsi %w1, %three : index
    %w3 = arith.subi %columns, %w : index
    %w4 = arith.minsi %w2, %w3 : index
    %n = arith.muli %h4, %w4 : index
    %i = arith.index_cast %n : index to i64
    %f = arith.sitofp %i : i64 to f32
    %q = arith.divf %in, %f : f32
    linalg.yield %q : f32
  } -> tensor<8x6x7xf32>
  return %y : tensor<8x6x7xf32>
}

// -----

// Left in the body: a mask, which is no float; a number of two operations; one that only four elements share.
// CHECK-LABEL: func.func @left(
// CHECK-COUNT-3: linalg.generic {indexing_maps = [#{{.+}}, #{{.+}}], iterator_types
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @left(%x: tensor<8x6x7xf32>, %z: tensor<4x6xf32>) -> (tensor<8x6x7xf32>, tensor<8x6x7xf32>, tensor<4x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %three = arith.constant 3 : index
  %e = tensor.empty() : tensor<8x6x7xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(c, h, w) -> (c, h, w)>, affine_map<(c, h, w) -> (c, h, w)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<8x6x7xf32>) outs(%e : tensor<8x6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %h = linalg.index 1 : index
    %w = linalg.index 2 : index
    %s = arith.addi %h, %one : index
    %t = arith.muli %s, %three : index
    %u = arith.addi %t, %w : index
    %v = arith.muli %u, %two : index
    %m = arith.cmpi slt, %v, %three : index
    %r = arith.select %m, %in, %zero : f32
    linalg.yield %r : f32
  } -> tensor<8x6x7xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(c, h, w) -> (c, h, w)>, affine_map<(c, h, w) -> (c, h, w)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<8x6x7xf32>) outs(%e : tensor<8x6x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %h = linalg.index 1 : index
    %i = arith.index_cast %h : index to i64
    %f = arith.sitofp %i : i64 to f32
    %r = arith.addf %in, %f : f32
    linalg.yield %r : f32
  } -> tensor<8x6x7xf32>
  %d = tensor.empty() : tensor<4x6xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(b, w) -> (b, w)>, affine_map<(b, w) -> (b, w)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%z : tensor<4x6xf32>) outs(%d : tensor<4x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %h = linalg.index 1 : index
    %s = arith.addi %h, %one : index
    %t = arith.muli %s, %three : index
    %u = arith.addi %t, %h : index
    %i = arith.index_cast %u : index to i64
    %f = arith.sitofp %i : i64 to f32
    %r = arith.addf %in, %f : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  return %a, %b, %c : tensor<8x6x7xf32>, tensor<8x6x7xf32>, tensor<4x6xf32>
}

// -----

// Left in the body: a table of 64 KiB, which would not stay in the nearest cache beside what it is for.
// CHECK-LABEL: func.func @large(
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @large(%x: tensor<8x128x128xf32>) -> tensor<8x128x128xf32> {
  %one = arith.constant 1 : index
  %e = tensor.empty() : tensor<8x128x128xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(c, h, w) -> (c, h, w)>, affine_map<(c, h, w) -> (c, h, w)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<8x128x128xf32>) outs(%e : tensor<8x128x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    %h = linalg.index 1 : index
    %w = linalg.index 2 : index
    %s = arith.muli %h, %w : index
    %t = arith.addi %s, %one : index
    %i = arith.index_cast %t : index to i64
    %f = arith.sitofp %i : i64 to f32
    %q = arith.divf %in, %f : f32
    linalg.yield %q : f32
  } -> tensor<8x128x128xf32>
  return %y : tensor<8x128x128xf32>
}
