// RUN: tilewright-opt %s --pass-pipeline='builtin.module(choose-packing{target=x86-64-v4})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(choose-packing{target=x86-64-v4},pack-contractions{vector-bits=512 registers=32})' | filecheck %s --check-prefix=DONE

// A block is as wide as the register tile; what is copied nowhere says nothing of copies.
// CHECK-LABEL: func.func @weight
// CHECK: attrs = {tilewright.choice = {block = 48 : i64}}
// DONE-LABEL: func.func @weight
// DONE-NOT: tilewright.choice
// DONE: linalg.generic {{.*}} outs(%{{.+}} : tensor<10x64x48xf32>)
func.func @weight(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// What is computed from a weight is one: a mirrored filter is gathered by index into what was filled, as that of a transposed
// convolution. What a body reads of an input is none.
// CHECK-LABEL: func.func @mirrored
// CHECK: attrs = {tilewright.choice = {block = 48 : i64}}
// CHECK: attrs = {tilewright.choice = {copy = false}}
func.func @mirrored(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %b: tensor<64x480xf32>, %i: tensor<32x480xf32>) -> (tensor<32x480xf32>, tensor<32x480xf32>) {
  %zero = arith.constant 0.0 : f32
  %last = arith.constant 63 : index
  %e = tensor.empty() : tensor<64x480xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x480xf32>) -> tensor<64x480xf32>
  %v = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]} outs(%f : tensor<64x480xf32>) {
  ^bb0(%o: f32):
    %k = linalg.index 0 : index
    %n = linalg.index 1 : index
    %at = arith.subi %last, %k : index
    %x = tensor.extract %w[%at, %n] : tensor<64x480xf32>
    linalg.yield %x : f32
  } -> tensor<64x480xf32>
  %u = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]} outs(%f : tensor<64x480xf32>) {
  ^bb0(%o: f32):
    %k = linalg.index 0 : index
    %n = linalg.index 1 : index
    %at = arith.subi %last, %k : index
    %x = tensor.extract %b[%at, %n] : tensor<64x480xf32>
    linalg.yield %x : f32
  } -> tensor<64x480xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %v : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %u : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r, %q : tensor<32x480xf32>, tensor<32x480xf32>
}

// There is nothing to choose where no block fills a vector.
// CHECK-LABEL: func.func @narrow
// CHECK-NOT: tilewright.choice
func.func @narrow(%a: tensor<32x64xf32>, %w: tensor<64x10xf32> {tilewright.role = "weight"}, %i: tensor<32x10xf32>) -> tensor<32x10xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x10xf32>) outs(%i : tensor<32x10xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x10xf32>
  return %r : tensor<32x10xf32>
}

// Copying an input at every call does not pay here.
// CHECK-LABEL: func.func @input
// CHECK: attrs = {tilewright.choice = {copy = false}}
// DONE-LABEL: func.func @input
// DONE-NOT: linalg.generic {{.*}}outs
// DONE: ins(%arg0, %arg1 : tensor<32x64xf32>, tensor<64x480xf32>)
func.func @input(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "input"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// What is written already is kept, and what is missing is chosen.
// CHECK-LABEL: func.func @copied
// CHECK: attrs = {tilewright.choice = {block = 48 : i64, copy = true}}
// DONE-LABEL: func.func @copied
// DONE: linalg.generic {{.*}} outs(%{{.+}} : tensor<10x64x48xf32>)
func.func @copied(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "input"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {copy = true}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// CHECK-LABEL: func.func @in_blocks
// CHECK: attrs = {tilewright.choice = {block = 96 : i64, copy = true}}
// DONE-LABEL: func.func @in_blocks
// DONE: linalg.generic {{.*}} outs(%{{.+}} : tensor<5x64x96xf32>)
func.func @in_blocks(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "input"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = 96}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}

// CHECK-LABEL: func.func @in_none
// CHECK: attrs = {tilewright.choice = {block = 0 : i64}}
// DONE-LABEL: func.func @in_none
// DONE: ins(%arg0, %arg1 : tensor<32x64xf32>, tensor<64x480xf32>)
func.func @in_none(%a: tensor<32x64xf32>, %w: tensor<64x480xf32> {tilewright.role = "weight"}, %i: tensor<32x480xf32>) -> tensor<32x480xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<32x64xf32>, tensor<64x480xf32>) outs(%i : tensor<32x480xf32>) attrs = {tilewright.choice = {block = 0}} {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x480xf32>
  return %r : tensor<32x480xf32>
}
