// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(place-inserts)' | filecheck %s

// A padded tensor: @square computes into the inside of the border; @sum reads all of it.
// CHECK-LABEL: func.func @main(
// CHECK: %[[S:.+]] = call @square
// CHECK: %[[FILL:.+]] = linalg.fill
// CHECK: %[[P:.+]] = tensor.insert_slice %[[S]] into %[[FILL]][0, 1] [4, 32] [1, 1] {tilewright.in_place}
// CHECK: call @sum(%[[P]])
// CHECK: func.func private @square(%{{.+}}: tensor<4x32xf32>) -> (tensor<4x32xf32> {tilewright.strides = array<i64: 34, 1>})
// CHECK: func.func private @sum(%{{[a-z0-9]+}}: tensor<4x34xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<4x32xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<4xf32> {
  %c = arith.constant 0.0 : f32
  %s = call @square(%x) : (tensor<4x32xf32>) -> tensor<4x32xf32>
  %e = tensor.empty() : tensor<4x34xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4x34xf32>) -> tensor<4x34xf32>
  %p = tensor.insert_slice %s into %f[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf32> into tensor<4x34xf32>
  %r = call @sum(%p) : (tensor<4x34xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func private @square(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %e = tensor.empty() : tensor<4x32xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<4x32xf32>
  return %r : tensor<4x32xf32>
}
func.func private @sum(%x: tensor<4x34xf32>) -> tensor<4xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x34xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.addf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// A concatenation of an argument and of two results of one dispatch. The argument is copied; the results are
// computed in place, at different strides from the dispatch's other call, so the dispatch is cloned.
// CHECK-LABEL: func.func @main(
// CHECK: %[[ONE:.+]] = call @square(%{{.+}})
// CHECK: %[[TWO:.+]] = call @square_s1(%[[ONE]])
// CHECK: %[[COPY:.+]] = call @[[COPIES:[a-z0-9_]+]](%{{.+}})
// CHECK: tensor.insert_slice %[[COPY]] into
// CHECK: tensor.insert_slice %[[TWO]] into
// CHECK: func.func private @[[COPIES]](%{{.+}}: tensor<4x16xf32>) -> (tensor<4x16xf32> {tilewright.strides = array<i64: 32, 1>})
// CHECK: func.func private @square(%{{.+}}: tensor<4x16xf32>) -> tensor<4x16xf32>
// CHECK: func.func private @square_s1(%{{.+}}: tensor<4x16xf32>) -> (tensor<4x16xf32> {tilewright.strides = array<i64: 32, 1>})
func.func @main(%x: tensor<4x16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<4x32xf32> {
  %1 = call @square(%x) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %2 = call @square(%1) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %e = tensor.empty() : tensor<4x32xf32>
  %a = tensor.insert_slice %x into %e[0, 0] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x32xf32>
  %b = tensor.insert_slice %2 into %a[0, 16] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x32xf32>
  return %b : tensor<4x32xf32>
}
func.func private @square(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %e = tensor.empty() : tensor<4x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// -----

// Copied instead: a result that is returned as well, one inserted twice (the second time), one that a reshape reads
// as dense memory, and one in pieces shorter than a cache line.
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-4: call @copy_
// CHECK-NOT: call @copy_
// CHECK: func.func private @make()
// CHECK-NOT: @make_s2
func.func @main(%x: tensor<1xf32> {tilewright.name = "x", tilewright.role = "input"})
    -> (tensor<4x16xf32>, tensor<16x16xf32>, tensor<4x34xf32>, tensor<64xf32>) {
  %1 = call @make() : () -> tensor<4x16xf32>
  %2 = call @make() : () -> tensor<4x16xf32>
  %3 = call @make() : () -> tensor<4x16xf32>
  %flat = tensor.collapse_shape %3 [[0, 1]] : tensor<4x16xf32> into tensor<64xf32>
  %dense = call @square(%flat) : (tensor<64xf32>) -> tensor<64xf32>
  %e = tensor.empty() : tensor<4x34xf32>
  %a = tensor.insert_slice %1 into %e[0, 0] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x34xf32>
  %b = tensor.insert_slice %3 into %a[0, 16] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x34xf32>
  %two = call @small() : () -> tensor<4x2xf32>
  %c = tensor.insert_slice %two into %b[0, 32] [4, 2] [1, 1] {tilewright.in_place} : tensor<4x2xf32> into tensor<4x34xf32>
  %e2 = tensor.empty() : tensor<16x16xf32>
  %f = tensor.insert_slice %2 into %e2[0, 0] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<16x16xf32>
  %g = tensor.insert_slice %2 into %f[4, 0] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<16x16xf32>
  return %1, %g, %c, %dense : tensor<4x16xf32>, tensor<16x16xf32>, tensor<4x34xf32>, tensor<64xf32>
}
func.func private @make() -> tensor<4x16xf32> {
  %c = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %f : tensor<4x16xf32>
}
func.func private @small() -> tensor<4x2xf32> {
  %c = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x2xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4x2xf32>) -> tensor<4x2xf32>
  return %f : tensor<4x2xf32>
}
func.func private @square(%x: tensor<64xf32>) -> tensor<64xf32> {
  return %x : tensor<64xf32>
}

// -----

// Concatenations that begin alike, whose first insertion CSE has merged, are a chain each; what both hold is computed
// in one of them and copied to the other.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[^ ]+]]: tensor<4x16xf32>
// CHECK: %[[WHOLE:.+]] = tensor.empty
// CHECK: %[[ONE:.+]] = call @square
// CHECK: %[[COPY:.+]] = call @copy_4x16_{{[0-9]+}}(%[[ONE]])
// CHECK-DAG: %[[A:.+]] = tensor.insert_slice %[[COPY]] into %[[WHOLE]]
// CHECK-DAG: %[[B:.+]] = tensor.insert_slice %[[ONE]] into %[[WHOLE]]
// CHECK-DAG: tensor.insert_slice %{{.+}} into %[[A]][0, 16]
// CHECK-DAG: tensor.insert_slice %{{.+}} into %[[B]][0, 16]
func.func @main(%x: tensor<4x16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %e = tensor.empty() : tensor<4x32xf32>
  %1 = call @square(%x) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %2 = call @square(%1) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %a = tensor.insert_slice %1 into %e[0, 0] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x32xf32>
  %b = tensor.insert_slice %2 into %a[0, 16] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x32xf32>
  %c = tensor.insert_slice %x into %a[0, 16] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x16xf32> into tensor<4x32xf32>
  return %b, %c : tensor<4x32xf32>, tensor<4x32xf32>
}
func.func private @square(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %e = tensor.empty() : tensor<4x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// -----

// A chain that another one goes on from, and that something reads as it is, is a tensor of its own.
// CHECK-LABEL: func.func @main(
// CHECK: %[[A:.+]] = tensor.insert_slice %{{.+}} into %{{.+}}[0] [16] [1]
// CHECK: %[[B:.+]] = tensor.insert_slice %{{.+}} into %{{.+}}[0] [16] [1]
// CHECK: tensor.insert_slice %{{.+}} into %[[A]][16] [16] [1]
// CHECK: tensor.extract_slice %[[B]]
func.func @main(%x: tensor<16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> (tensor<32xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<32xf32>
  %a = tensor.insert_slice %x into %e[0] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<32xf32>
  %b = tensor.insert_slice %x into %a[16] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<32xf32>
  %s = tensor.extract_slice %a[4] [8] [1] {tilewright.in_place} : tensor<32xf32> to tensor<8xf32>
  %r = call @square(%s) : (tensor<8xf32>) -> tensor<8xf32>
  return %b, %r : tensor<32xf32>, tensor<8xf32>
}
func.func private @square(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}

// -----

// The memory with a border belongs to no call: what is returned with one is copied.
// CHECK-LABEL: func.func @main(
// CHECK: %[[P:.+]] = tensor.insert_slice %{{.+}} into %{{.+}}[2] [16] [1] {tilewright.in_place}
// CHECK: %[[COPY:.+]] = call @copy_20_{{[0-9]+}}(%[[P]])
// CHECK: return %[[COPY]]
func.func @main(%x: tensor<16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<20xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<20xf32>) -> tensor<20xf32>
  %p = tensor.insert_slice %x into %f[2] [16] [1] {tilewright.in_place} : tensor<16xf32> into tensor<20xf32>
  return %p : tensor<20xf32>
}

// -----

// A slice of reshaped slices lies where the first one does: @sort, which is more than loops, reads a copy.
// CHECK-LABEL: func.func @main(
// CHECK: %[[S:.+]] = tensor.extract_slice %{{.+}}[0, 0, 1] [1, 3, 2] [1, 1, 1] {tilewright.in_place}
// CHECK: %[[COPY:.+]] = call @copy_{{.+}}(%[[S]])
// CHECK: call @scan(%[[COPY]])
func.func @main(%x: tensor<3x16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<1x3x2xf32> {
  %s = tensor.extract_slice %x[0, 4] [3, 8] [1, 1] {tilewright.in_place} : tensor<3x16xf32> to tensor<3x8xf32>
  %v = tensor.expand_shape %s [[0], [1, 2]] output_shape [3, 4, 2] : tensor<3x8xf32> into tensor<3x4x2xf32>
  %w = tensor.expand_shape %v [[0, 1], [2], [3]] output_shape [1, 3, 4, 2] : tensor<3x4x2xf32> into tensor<1x3x4x2xf32>
  %t = tensor.extract_slice %w[0, 0, 0, 0] [1, 3, 4, 1] [1, 1, 1, 1] {tilewright.in_place} : tensor<1x3x4x2xf32> to tensor<1x3x4xf32>
  %u = tensor.extract_slice %t[0, 0, 1] [1, 3, 2] [1, 1, 1] {tilewright.in_place} : tensor<1x3x4xf32> to tensor<1x3x2xf32>
  %r = call @scan(%u) : (tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  return %r : tensor<1x3x2xf32>
}
func.func private @scan(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %0 = tensor.cast %x : tensor<1x3x2xf32> to tensor<?x3x2xf32>
  %1 = tensor.cast %0 : tensor<?x3x2xf32> to tensor<1x3x2xf32>
  return %1 : tensor<1x3x2xf32>
}

// -----

// What weights alone decide reads slices of them, too: @prepack's dispatches are told their strides, or read a copy.
// CHECK-LABEL: func.func @main(
// CHECK: func.func @prepack
// CHECK: %[[S:.+]] = tensor.extract_slice %{{.+}}[0, 4] [4, 16] [1, 1] {tilewright.in_place}
// CHECK-DAG: call @square(%[[S]])
// CHECK-DAG: %[[COPY:.+]] = call @copy_4x16_{{[0-9]+}}(%{{.+}})
// CHECK: call @thin(%[[COPY]])
// CHECK: func.func private @square(%{{.+}}: tensor<4x16xf32> {tilewright.strides = array<i64: 32, 1>})
func.func @main(%w: tensor<4x32xf32> {tilewright.name = "w", tilewright.role = "weight"},
                %p: tensor<4x16xf32> {tilewright.index = 0 : i64, tilewright.name = "packed0", tilewright.role = "packed"},
                %q: tensor<4x8xf32> {tilewright.index = 1 : i64, tilewright.name = "packed1", tilewright.role = "packed"}) {
  return
}
func.func @prepack(%w: tensor<4x32xf32> {tilewright.name = "w", tilewright.role = "weight"}) -> (tensor<4x16xf32>, tensor<4x8xf32>) {
  %s = tensor.extract_slice %w[0, 4] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x32xf32> to tensor<4x16xf32>
  %t = tensor.extract_slice %w[0, 4] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x32xf32> to tensor<4x16xf32>
  %1 = call @square(%s) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %2 = call @thin(%t) : (tensor<4x16xf32>) -> tensor<4x8xf32>
  return %1, %2 : tensor<4x16xf32>, tensor<4x8xf32>
}
func.func private @square(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %e = tensor.empty() : tensor<4x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}
func.func private @thin(%x: tensor<4x16xf32>) -> tensor<4x8xf32> {
  %r = tensor.extract_slice %x[0, 0] [4, 8] [1, 2] : tensor<4x16xf32> to tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

// Without insertions in place nothing changes.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: return
func.func @main(%x: tensor<16xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<16xf32> {
  return %x : tensor<16xf32>
}

// -----

// A slice with gaps is read where it lies by loops; what reshapes it to dense memory reads a copy.
// CHECK-LABEL: func.func @main(
// CHECK: %[[S:.+]] = tensor.extract_slice %arg0[0, 4] [4, 16] [1, 1] {tilewright.in_place}
// CHECK: %[[A:.+]] = call @square(%[[S]])
// CHECK: %[[T:.+]] = tensor.extract_slice %arg0[0, 5] [4, 16] [1, 1] {tilewright.in_place}
// CHECK: %[[COPY:.+]] = call @[[COPIES:[a-z0-9_]+]](%[[T]])
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %[[COPY]]
// CHECK: call @flat(%[[FLAT]])
// CHECK: func.func private @[[COPIES]](%{{.+}}: tensor<4x16xf32> {tilewright.strides = array<i64: 32, 1>}) -> tensor<4x16xf32>
// CHECK: func.func private @square(%{{.+}}: tensor<4x16xf32> {tilewright.strides = array<i64: 32, 1>})
func.func @main(%x: tensor<4x32xf32> {tilewright.name = "x", tilewright.role = "input"}) -> (tensor<4x16xf32>, tensor<64xf32>) {
  %s = tensor.extract_slice %x[0, 4] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x32xf32> to tensor<4x16xf32>
  %1 = call @square(%s) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %t = tensor.extract_slice %x[0, 5] [4, 16] [1, 1] {tilewright.in_place} : tensor<4x32xf32> to tensor<4x16xf32>
  %flat = tensor.collapse_shape %t [[0, 1]] : tensor<4x16xf32> into tensor<64xf32>
  %2 = call @flat(%flat) : (tensor<64xf32>) -> tensor<64xf32>
  return %1, %2 : tensor<4x16xf32>, tensor<64xf32>
}
func.func private @square(%x: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %e = tensor.empty() : tensor<4x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}
func.func private @flat(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
