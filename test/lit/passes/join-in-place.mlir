// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(join-in-place)' | filecheck %s

// A pad that a reduction reads becomes an insertion into a fill of the padded shape.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.+]]: tensor<4x6xf32>
// CHECK: %[[ZERO:.+]] = arith.constant 0.0
// CHECK: %[[FILL:.+]] = linalg.fill ins(%[[ZERO]] : f32) outs(%{{.+}} : tensor<4x9xf32>)
// CHECK: %[[P:.+]] = tensor.insert_slice %[[X]] into %[[FILL]][0, 1] [4, 6] [1, 1] {tilewright.in_place}
// CHECK-NOT: tensor.pad
// CHECK: linalg.reduce {{.*}} ins(%[[P]] : tensor<4x9xf32>)
func.func @main(%x: tensor<4x6xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<4xf32> {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<4x6xf32> to tensor<4x9xf32>
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.reduce { arith.addf } ins(%p : tensor<4x9xf32>) outs(%f : tensor<4xf32>) dimensions = [1]
  return %s : tensor<4xf32>
}

// -----

// Two pads of one tensor with one constant: padded once, by the most on each side; each reads its own part.
// CHECK-LABEL: func.func @main(
// CHECK: %[[P:.+]] = tensor.insert_slice %{{.+}} into %{{.+}}[2] [6] [1] {tilewright.in_place} : tensor<6xf32> into tensor<11xf32>
// CHECK: tensor.extract_slice %[[P]][1] [8] [1] {tilewright.in_place} : tensor<11xf32> to tensor<8xf32>
// CHECK: tensor.extract_slice %[[P]][0] [9] [1] {tilewright.in_place} : tensor<11xf32> to tensor<9xf32>
// CHECK-NOT: linalg.fill ins(%{{.+}}) outs(%{{.+}} : tensor<8xf32>)
func.func @main(%x: tensor<6xf32> {tilewright.name = "x", tilewright.role = "input"}) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<8xf32>
  %q = tensor.pad %x low[2] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<9xf32>
  %r = tensor.pad %x low[0] high[3] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<9xf32>
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.reduce { arith.addf } ins(%p : tensor<8xf32>) outs(%f : tensor<f32>) dimensions = [0]
  %t = linalg.reduce { arith.addf } ins(%q : tensor<9xf32>) outs(%f : tensor<f32>) dimensions = [0]
  %u = linalg.reduce { arith.addf } ins(%r : tensor<9xf32>) outs(%f : tensor<f32>) dimensions = [0]
  return %s, %t, %u : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// A concatenation is a chain of insertions, the result included when it is returned.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.+]]: tensor<2x3xf32>
// CHECK: %[[WHOLE:.+]] = tensor.empty() : tensor<2x8xf32>
// CHECK: %[[ONE:.+]] = tensor.insert_slice %[[X]] into %[[WHOLE]][0, 0] [2, 3] [1, 1] {tilewright.in_place}
// CHECK: %[[TWO:.+]] = tensor.insert_slice %{{.+}} into %[[ONE]][0, 3] [2, 5] [1, 1] {tilewright.in_place}
// CHECK: return %[[TWO]]
func.func @main(%x: tensor<2x3xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<2x8xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<2x5xf32>) -> tensor<2x5xf32>
  %r = tensor.concat dim(1) %x, %f : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>
  return %r : tensor<2x8xf32>
}

// -----

// Left alone: a pad that is returned, one by a negative amount, one that only an element-wise operation reads, and
// what weights alone decide.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: tilewright.in_place
// CHECK-COUNT-3: tensor.pad
// CHECK: tensor.concat
func.func @main(%x: tensor<6xf32> {tilewright.name = "x", tilewright.role = "input"},
                %w: tensor<6xf32> {tilewright.name = "w", tilewright.role = "weight"})
    -> (tensor<8xf32>, tensor<f32>, tensor<8xf32>, tensor<12xf32>) {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<8xf32>
  %q = tensor.pad %x low[-1] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<6xf32>
  %r = tensor.pad %x low[0] high[2] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<8xf32>
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.reduce { arith.addf } ins(%q : tensor<6xf32>) outs(%f : tensor<f32>) dimensions = [0]
  %e8 = tensor.empty() : tensor<8xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%r : tensor<8xf32>) outs(%e8 : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  %u = tensor.concat dim(0) %w, %w : (tensor<6xf32>, tensor<6xf32>) -> tensor<12xf32>
  return %p, %s, %t, %u : tensor<8xf32>, tensor<f32>, tensor<8xf32>, tensor<12xf32>
}

// -----

// Other functions keep their pads.
// CHECK-LABEL: func.func @helper(
// CHECK: tensor.concat
func.func @helper(%x: tensor<2xf32>) -> tensor<4xf32> {
  %r = tensor.concat dim(0) %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// Static slices of consecutive elements are marked; one that skips elements is not.
// CHECK-LABEL: func.func @main(
// CHECK: tensor.extract_slice %arg0[0, 1] [4, 2] [1, 1] {tilewright.in_place}
// CHECK: tensor.extract_slice %arg0[0, 0] [4, 2] [1, 2] :
func.func @main(%x: tensor<4x6xf32> {tilewright.name = "x", tilewright.role = "input"}) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %a = tensor.extract_slice %x[0, 1] [4, 2] [1, 1] : tensor<4x6xf32> to tensor<4x2xf32>
  %b = tensor.extract_slice %x[0, 0] [4, 2] [1, 2] : tensor<4x6xf32> to tensor<4x2xf32>
  return %a, %b : tensor<4x2xf32>, tensor<4x2xf32>
}
