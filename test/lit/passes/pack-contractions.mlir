// RUN: tilewright-opt %s --pass-pipeline='builtin.module(pack-contractions{vector-bits=512 registers=32})' | filecheck %s

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-DAG: #[[PACKED:.+]] = affine_map<(d0, d1, d2) -> (d1 floordiv [[BLOCK:[0-9]+]], d2, d1 mod [[BLOCK]])>

// The weight is split into blocks of columns, each contiguous over the whole reduction; the matmul keeps its loops.
// CHECK-LABEL: func.func @weight
// CHECK: %[[SPLIT:.+]] = tensor.expand_shape %arg1 {{\[\[}}0], [1, 2]] output_shape [256, [[BLOCKS:[0-9]+]], [[BLOCK]]]
// CHECK: %[[PACKED_W:.+]] = linalg.generic {{.*}} ins(%[[SPLIT]] {{.*}} outs(%{{.+}} : tensor<[[BLOCKS]]x256x[[BLOCK]]xf32>)
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[PACKED]], #{{.+}}], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME: ins(%arg0, %[[PACKED_W]]
func.func @weight(%a: tensor<64x256xf32>, %w: tensor<256x512xf32> {tilewright.role = "weight"}, %i: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<256x512xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  return %r : tensor<64x512xf32>
}

// Packing an input would cost at every call.
// CHECK-LABEL: func.func @input
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @input(%a: tensor<64x256xf32>, %w: tensor<256x512xf32> {tilewright.role = "input"}, %i: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %r = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<64x256xf32>, tensor<256x512xf32>) outs(%i : tensor<64x512xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<64x512xf32>
  return %r : tensor<64x512xf32>
}
