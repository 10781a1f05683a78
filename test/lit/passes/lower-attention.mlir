// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-attention{vector-bits=512 registers=32}))' | filecheck %s

#q = affine_map<(h, m, n, k, d) -> (m, h * 16 + k)>
#k = affine_map<(h, m, n, k, d) -> (n, h * 16 + k)>
#v = affine_map<(h, m, n, k, d) -> (n, h * 16 + d)>
#out = affine_map<(h, m, n, k, d) -> (m, h * 16 + d)>

// Two heads times pieces of the 40 queries. Queries are transposed once into lanes; scores, weights and results stay
// in temporaries; what is left of the tensors is the kernel's own arguments.
// CHECK-LABEL: func.func @attend
// CHECK: scf.forall (%[[HEAD:.+]], %[[PIECE:.+]]) in (2, [[PIECES:[0-9]+]])
// CHECK: memref.alloc() : memref<16x[[LANES:[0-9]+]]xf32>
// CHECK: memref.alloc() : memref<50x[[LANES]]xf32>
// CHECK: vector.shuffle
// CHECK: memref.load %arg1
// CHECK: vector.fma
// CHECK: memref.load %arg2
// CHECK: vector.fma
// CHECK: vector.store %{{.+}}, %arg3
// CHECK-NOT: tilewright.attention
// CHECK-NOT: materialize_in_destination
func.func @attend(%q: memref<40x32xf32>, %k: memref<50x32xf32>, %v: memref<50x32xf32>, %out: memref<40x32xf32>) {
  %tq = bufferization.to_tensor %q restrict : memref<40x32xf32> to tensor<40x32xf32>
  %tk = bufferization.to_tensor %k restrict : memref<50x32xf32> to tensor<50x32xf32>
  %tv = bufferization.to_tensor %v restrict : memref<50x32xf32> to tensor<50x32xf32>
  %r = "tilewright.attention"(%tq, %tk, %tv) ({
  ^bb0(%s: f32, %row: index, %column: index):
    "tilewright.yield"(%s) : (f32) -> ()
  }) {indexing_maps = [#q, #k, #v, #out], loops = [2, 40, 50, 16, 16], tilewright.loops = {attention = [40, 3, 50, 28]}, scale = 0.25 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<40x32xf32>, tensor<50x32xf32>, tensor<50x32xf32>) -> tensor<40x32xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<40x32xf32>, memref<40x32xf32>) -> ()
  return
}
