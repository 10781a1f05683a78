// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{along-same=true})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches)' | filecheck %s --check-prefix=ALL

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#rows3 = affine_map<(d0, d1, d2) -> (d0, d1)>

// Sums along rows, of what sums along columns gave: threads would share rows of two kinds.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-2: call @reduction
// ALL-LABEL: func.func @main
// ALL-COUNT-1: call @reduction
// ALL-NOT: call
// ALL: return
func.func @main(%x: tensor<8x16xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  %s = linalg.generic {indexing_maps = [#id2, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8x16xf32>) outs(%z : tensor<16xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<16xf32>
  %e0 = tensor.empty() : tensor<f32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<f32>) -> tensor<f32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
      ins(%s : tensor<16xf32>) outs(%z0 : tensor<f32>) {
  ^bb0(%in: f32, %o: f32):
    %m = arith.mulf %in, %in : f32
    %r = arith.addf %m, %o : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %t : tensor<f32>
}

// A softmax's rows are of one kind: its loop along columns walks again what was summed.
// CHECK-LABEL: func.func @softmax
// CHECK-COUNT-1: call @reduction_64x256
// CHECK-NOT: call
// CHECK: return
func.func @softmax(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [#id2, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x256xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %e2 = tensor.empty() : tensor<64x256xf32>
  %d = linalg.generic {indexing_maps = [#id2, #row, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<64x256xf32>, tensor<64xf32>) outs(%e2 : tensor<64x256xf32>) {
  ^bb0(%in: f32, %sum: f32, %o: f32):
    %r = arith.divf %in, %sum : f32
    linalg.yield %r : f32
  } -> tensor<64x256xf32>
  return %d : tensor<64x256xf32>
}

// A product and sums along rows of the same results.
// CHECK-LABEL: func.func @product
// CHECK-DAG: call @reduction
// CHECK-DAG: call @matmul
// CHECK: return
// ALL-LABEL: func.func @product
// ALL-COUNT-1: call @matmul
// ALL-NOT: call
// ALL: return
func.func @product(%a: tensor<64x32xf32>, %b: tensor<32x48xf32>, %x: tensor<64x48x4xf32>) -> tensor<64x48xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x48xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %s = linalg.generic {indexing_maps = [#id3, #rows3], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<64x48x4xf32>) outs(%z : tensor<64x48xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<64x48xf32>
  %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<64x32xf32>, tensor<32x48xf32>) outs(%z : tensor<64x48xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<64x48xf32>
  %d = linalg.generic {indexing_maps = [#id2, #id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<64x48xf32>, tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %q = arith.addf %l, %r : f32
    linalg.yield %q : f32
  } -> tensor<64x48xf32>
  return %d : tensor<64x48xf32>
}

// Sums that three rows of results would each compute again.
// CHECK-LABEL: func.func @repeated
// CHECK: call @reduction
// CHECK: call @elementwise
// CHECK: return
// ALL-LABEL: func.func @repeated
// ALL-COUNT-1: call @reduction
// ALL-NOT: call
// ALL: return
func.func @repeated(%x: tensor<64x16xf32>) -> tensor<3x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [#id2, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x16xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%in: f32, %o: f32):
    %r = arith.addf %in, %o : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %e2 = tensor.empty() : tensor<3x64xf32>
  %d = linalg.generic {indexing_maps = [#column, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<64xf32>) outs(%e2 : tensor<3x64xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<3x64xf32>
  return %d : tensor<3x64xf32>
}
