// RUN: tilewright-opt %s --pass-pipeline='builtin.module(orient-contractions{vector-bits=512 registers=32})' | filecheck %s

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#right_turned = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#same = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-DAG: #[[TURNED:.+]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[NK:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[KM:.+]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[NM:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>

// 1733 is prime. The weight is read as it was stored, before somebody transposed it; activations and result are turned.
// CHECK-LABEL: func.func @prime
// CHECK: %[[X:.+]] = linalg.generic {indexing_maps = [#[[TURNED]], {{.*}} ins(%arg0 : tensor<64x256xf32>) outs(%{{.+}} : tensor<256x64xf32>)
// CHECK: %[[START:.+]] = linalg.fill {{.*}} -> tensor<1733x64xf32>
// CHECK: %[[C:.+]] = linalg.generic {indexing_maps = [#[[KM]], #[[NK]], #[[NM]]], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME: ins(%[[X]], %arg1 : tensor<256x64xf32>, tensor<1733x256xf32>) outs(%[[START]] : tensor<1733x64xf32>)
// CHECK: %[[R:.+]] = linalg.generic {indexing_maps = [#[[TURNED]], {{.*}} ins(%[[C]] : tensor<1733x64xf32>) outs(%{{.+}} : tensor<64x1733xf32>)
// CHECK: return %[[R]]
func.func @prime(%a: tensor<64x256xf32>, %w: tensor<1733x256xf32> {tilewright.role = "weight"}) -> tensor<64x1733xf32> {
  %zero = arith.constant 0.0 : f32
  %ew = tensor.empty() : tensor<256x1733xf32>
  %wt = linalg.generic {indexing_maps = [#turned, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<1733x256xf32>) outs(%ew : tensor<256x1733xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<256x1733xf32>
  %e = tensor.empty() : tensor<64x1733xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<64x1733xf32>) -> tensor<64x1733xf32>
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %wt : tensor<64x256xf32>, tensor<256x1733xf32>) outs(%i : tensor<64x1733xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x1733xf32>
  return %r : tensor<64x1733xf32>
}

// 1792 columns divide into blocks: packing serves better.
// CHECK-LABEL: func.func @packable
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @packable(%a: tensor<64x256xf32>, %w: tensor<1792x256xf32> {tilewright.role = "weight"}) -> tensor<64x1792xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x1792xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<64x1792xf32>) -> tensor<64x1792xf32>
  %r = linalg.generic {indexing_maps = [#left, #right_turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<1792x256xf32>) outs(%i : tensor<64x1792xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x1792xf32>
  return %r : tensor<64x1792xf32>
}

// Vectors along 20 rows would leave twelve lanes of 32 idle.
// CHECK-LABEL: func.func @few_rows
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @few_rows(%a: tensor<20x256xf32>, %w: tensor<1733x256xf32> {tilewright.role = "weight"}) -> tensor<20x1733xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x1733xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<20x1733xf32>) -> tensor<20x1733xf32>
  %r = linalg.generic {indexing_maps = [#left, #right_turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<20x256xf32>, tensor<1733x256xf32>) outs(%i : tensor<20x1733xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<20x1733xf32>
  return %r : tensor<20x1733xf32>
}

// Nothing is known of a matrix that is an input too: no copy of it waits in @prepack to be saved.
// CHECK-LABEL: func.func @input
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @input(%a: tensor<64x256xf32>, %w: tensor<1733x256xf32>) -> tensor<64x1733xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x1733xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<64x1733xf32>) -> tensor<64x1733xf32>
  %r = linalg.generic {indexing_maps = [#left, #right_turned, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<1733x256xf32>) outs(%i : tensor<64x1733xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x1733xf32>
  return %r : tensor<64x1733xf32>
}
