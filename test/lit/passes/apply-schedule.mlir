// RUN: tilewright-opt %s --pass-pipeline='builtin.module(apply-schedule)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(apply-schedule,canonicalize,cse,form-kernels,eliminate-empty-tensors,one-shot-bufferize,canonicalize,cse)' | filecheck %s --check-prefix=BUFFERS

// CHECK-DAG: #[[LAST:.+]] = affine_map<(d0) -> (34, d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: func.func private @even
// CHECK: scf.forall (%[[I:.+]]) = (0) to (64) step (16)
// CHECK: tensor.extract_slice %arg0[%[[I]], 0] [16, 32] [1, 1]
// CHECK: linalg.generic {{.*}} ins(%{{.+}} : tensor<16x32xf32>)
// CHECK: tensor.parallel_insert_slice
func.func private @even(%x: tensor<64x32xf32>) -> tensor<64x32xf32>
    attributes {tilewright.schedule = {tile = [16, 0], unroll = 0, vector = 0}} {
  %e = tensor.empty() : tensor<64x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// The last of 50 rows in tiles of 16 starts at 34, not 48, and has full size.
// CHECK-LABEL: func.func private @ragged
// CHECK: scf.forall (%[[I:.+]]) = (0) to (50) step (16)
// CHECK: %[[START:.+]] = affine.min #[[LAST]](%[[I]])
// CHECK: tensor.extract_slice %arg0[%[[START]], 0] [16, 32] [1, 1] : tensor<50x32xf32> to tensor<16x32xf32>
// CHECK-NOT: tensor<?
// CHECK: tensor.parallel_insert_slice %{{.+}} into %{{.+}}[%[[START]], 0] [16, 32]
func.func private @ragged(%x: tensor<50x32xf32>) -> tensor<50x32xf32>
    attributes {tilewright.schedule = {tile = [16, 32], unroll = 0, vector = 0}} {
  %e = tensor.empty() : tensor<50x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<50x32xf32>) outs(%e : tensor<50x32xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<50x32xf32>
  return %r : tensor<50x32xf32>
}

// Producers follow the sink into the tile, the fill included.
// CHECK-LABEL: func.func private @fused
// CHECK: scf.forall (%[[I:.+]], %[[J:.+]]) = (0, 0) to (64, 32) step (16, 16)
// CHECK-DAG: tensor.extract_slice %arg0[%[[I]], 0] [16, 8]
// CHECK-DAG: tensor.extract_slice %arg1[0, %[[J]]] [8, 16]
// CHECK: %[[INIT:.+]] = linalg.fill {{.*}} -> tensor<16x16xf32>
// CHECK: %[[PRODUCT:.+]] = linalg.generic {{.*}} outs(%[[INIT]] : tensor<16x16xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[PRODUCT]] : tensor<16x16xf32>)
// CHECK: arith.maximumf
func.func private @fused(%x: tensor<64x8xf32>, %w: tensor<8x32xf32>) -> tensor<64x32xf32>
    attributes {tilewright.schedule = {tile = [16, 16], unroll = 0, vector = 0}} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x32xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<64x32xf32>) -> tensor<64x32xf32>
  %m = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x8xf32>, tensor<8x32xf32>) outs(%i : tensor<64x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x32xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.maximumf %in, %z : f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// Nothing to cut: no schedule, or one that leaves every loop whole.
// CHECK-LABEL: func.func private @whole
// CHECK-NOT: scf.forall
// CHECK: return
func.func private @whole(%x: tensor<8x4xf32>) -> tensor<8x4xf32>
    attributes {tilewright.schedule = {tile = [0, 0], unroll = 0, vector = 0}} {
  %e = tensor.empty() : tensor<8x4xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.mulf %in, %in : f32
    linalg.yield %a : f32
  } -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// CHECK-LABEL: func.func private @unscheduled
// CHECK-NOT: scf.forall
// CHECK: return
func.func private @unscheduled(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}

// What an accumulation starts from is taken rTask by rTask; as the initial result, somebody would have to copy all of
// it before the first rTask runs.
// CHECK-LABEL: func.func private @accumulation
// CHECK: %[[RESULT:.+]] = tensor.empty() : tensor<8xf32>
// CHECK: scf.forall (%[[I:.+]]) = (0) to (8) step (4) shared_outs(%{{.+}} = %[[RESULT]])
// CHECK: %[[START:.+]] = tensor.extract_slice %arg1[%[[I]]] [4] [1]
// CHECK: linalg.generic {{.*}}"reduction"]} ins(%{{.+}} : tensor<4x16xf32>) outs(%[[START]] : tensor<4xf32>)
func.func private @accumulation(%x: tensor<8x16xf32>, %s: tensor<8xf32>) -> tensor<8xf32>
    attributes {tilewright.schedule = {tile = [4, 0], unroll = 0, vector = 0}} {
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x16xf32>) outs(%s : tensor<8xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %o : f32
    linalg.yield %a : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// Overlapping rTasks that accumulate do so in memory of their own: in the result, one would add to what another adds to.
// CHECK-LABEL: func.func private @ragged_accumulation
// CHECK: scf.forall (%[[I:.+]]) = (0) to (50) step (16)
// CHECK: %[[START:.+]] = affine.min #[[LAST]](%[[I]])
// CHECK: linalg.generic {{.*}}"reduction"]} ins(%{{.+}} : tensor<16x64xf32>)
// CHECK: tensor.parallel_insert_slice %{{.+}} into %{{.+}}[%[[START]]] [16] [1]
// BUFFERS-LABEL: func.func @ragged_accumulation
// BUFFERS: scf.forall
// BUFFERS: %[[OWN:.+]] = memref.alloc() {{.*}}memref<16xf32>
// BUFFERS: linalg.fill {{.*}} outs(%[[OWN]]
// BUFFERS: linalg.generic {{.*}}"reduction"]} {{.*}} outs(%[[OWN]]
// BUFFERS: memref.copy %[[OWN]]
func.func private @ragged_accumulation(%x: tensor<50x64xf32>) -> tensor<50xf32>
    attributes {tilewright.schedule = {tile = [16, 0], unroll = 0, vector = 0}} {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<50xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<50xf32>) -> tensor<50xf32>
  %r = linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<50x64xf32>) outs(%i : tensor<50xf32>) {
  ^bb0(%in: f32, %o: f32):
    %a = arith.addf %in, %o : f32
    linalg.yield %a : f32
  } -> tensor<50xf32>
  return %r : tensor<50xf32>
}
