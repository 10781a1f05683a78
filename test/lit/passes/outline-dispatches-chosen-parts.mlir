// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{under-windows=true})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches)' | filecheck %s --check-prefix=APART
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(choose-packing{target=x86-64-v4},pack-contractions{vector-bits=512 registers=32})' | filecheck %s --check-prefix=PACKED
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{under-windows=true},construct-schedules{target=x86-64-v4},apply-schedule,canonicalize)' | filecheck %s --check-prefix=CUT

#numbers = affine_map<(b, k, n) -> (b)>
#parts = affine_map<(b, k, n) -> (b, k, n)>
#left = affine_map<(b, m, n, k) -> (b, m, k)>
#right = affine_map<(b, m, n, k) -> (b, k, n)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>
#chosen = affine_map<(b, m, k) -> (b)>
#rows = affine_map<(b, m, k) -> (b, m, k)>
#shared = affine_map<(m, n, k) -> (k, n)>
#row = affine_map<(m, n, k) -> (m, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#place = affine_map<(m, k) -> (m)>
#places = affine_map<(m, k) -> (m, k)>

// A product takes one matrix of the table for each of its batch, and needs no copy of it.
// CHECK-LABEL: func.func @matrices(
// CHECK-NEXT: call @matmul
// CHECK-NEXT: return
// Kernels of GPUs have no such loops: the matrices are copied first.
// APART-LABEL: func.func @matrices(
// APART-NEXT: call @elementwise
// APART-NEXT: call @matmul
// A weight is stored in blocks as a whole, and its matrices are chosen of that.
// PACKED-LABEL: func.func @matrices(
// PACKED: %[[SPLIT:.+]] = tensor.expand_shape %arg1 {{.*}} output_shape [8, 64, [[BLOCKS:[0-9]+]], [[BLOCK:[0-9]+]]]
// PACKED: %[[TABLE:.+]] = linalg.generic {{.*}} ins(%[[SPLIT]]
// PACKED: %[[OWN:.+]] = linalg.generic {{.*}} ins(%arg2 : tensor<5xi64>) outs(%{{.+}} : tensor<5x[[BLOCKS]]x64x[[BLOCK]]xf32>)
// PACKED: tensor.extract %[[TABLE]]
// PACKED: linalg.generic {{.*}} ins(%arg0, %[[OWN]]
// PACKED-NOT: tensor.extract %arg1
// PACKED: return
// An rTask walks the batch by single steps, and reads a slice.
// CUT-LABEL: func.func private @matmul_5x
// CUT: %[[I:.+]] = tensor.extract %{{.+}} : tensor<{{[0-9x]+}}xi64>
// CUT: %[[AT:.+]] = arith.index_cast %[[I]]
// CUT: %[[PART:.+]] = tensor.extract_slice %{{.+}}[%[[AT]], 0, {{.*}}] [1, 64, {{[0-9]+}}] [1, 1, 1] : tensor<8x64x128xf32> to
// CUT: linalg.generic {{.*}} ins(%{{.+}}, %[[PART]]
func.func @matrices(%x: tensor<5x4x64xf32>, %w: tensor<8x64x128xf32> {tilewright.role = "weight"}, %i: tensor<5xi64>) -> tensor<5x4x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x64x128xf32>
  %g = linalg.generic {indexing_maps = [#numbers, #parts], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%e : tensor<5x64x128xf32>) {
  ^bb0(%number: i64, %o: f32):
    %at = arith.index_cast %number : i64 to index
    %k = linalg.index 1 : index
    %n = linalg.index 2 : index
    %v = tensor.extract %w[%at, %k, %n] : tensor<8x64x128xf32>
    linalg.yield %v : f32
  } -> tensor<5x64x128xf32>
  %r = tensor.empty() : tensor<5x4x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<5x4x128xf32>) -> tensor<5x4x128xf32>
  %p = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %g : tensor<5x4x64xf32>, tensor<5x64x128xf32>) outs(%f : tensor<5x4x128xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x4x128xf32>
  return %p : tensor<5x4x128xf32>
}

// Rows that are chosen for a matrix that all of them share are copied: single steps would read all of that for each.
// CHECK-LABEL: func.func @rows(
// CHECK-NEXT: call @elementwise
// CHECK-NEXT: call @matmul
func.func @rows(%x: tensor<9x64xf32>, %w: tensor<64x128xf32>, %i: tensor<30xi64>) -> tensor<30x128xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<30x64xf32>
  %g = linalg.generic {indexing_maps = [#place, #places], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<30xi64>) outs(%e : tensor<30x64xf32>) {
  ^bb0(%number: i64, %o: f32):
    %at = arith.index_cast %number : i64 to index
    %k = linalg.index 1 : index
    %v = tensor.extract %x[%at, %k] : tensor<9x64xf32>
    linalg.yield %v : f32
  } -> tensor<30x64xf32>
  %r = tensor.empty() : tensor<30x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<30x128xf32>) -> tensor<30x128xf32>
  %p = linalg.generic {indexing_maps = [#row, #shared, #sums], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%g, %w : tensor<30x64xf32>, tensor<64x128xf32>) outs(%f : tensor<30x128xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<30x128xf32>
  return %p : tensor<30x128xf32>
}

// A gather that computes with what it reads, or at a place inside of the part, chooses no parts.
// CHECK-LABEL: func.func @turned(
// CHECK-NEXT: call @elementwise
// CHECK-NEXT: call @matmul
// CHECK: a contraction would recompute it
func.func @turned(%x: tensor<5x4x64xf32>, %w: tensor<8x64x64xf32>, %i: tensor<5xi64>) -> tensor<5x4x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x64x64xf32>
  %g = linalg.generic {indexing_maps = [#chosen, #rows], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%e : tensor<5x64x64xf32>) {
  ^bb0(%number: i64, %o: f32):
    %at = arith.index_cast %number : i64 to index
    %k = linalg.index 1 : index
    %n = linalg.index 2 : index
    %v = tensor.extract %w[%at, %n, %k] : tensor<8x64x64xf32>
    linalg.yield %v : f32
  } -> tensor<5x64x64xf32>
  %r = tensor.empty() : tensor<5x4x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<5x4x64xf32>) -> tensor<5x4x64xf32>
  %p = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %g : tensor<5x4x64xf32>, tensor<5x64x64xf32>) outs(%f : tensor<5x4x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x4x64xf32>
  return %p : tensor<5x4x64xf32>
}
