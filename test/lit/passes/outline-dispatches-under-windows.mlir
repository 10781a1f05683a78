// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches{under-windows=true})' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(outline-dispatches)' | filecheck %s --check-prefix=APART

// Padding is a part of what slides over it, and cuts that less than anything else would: rows overlap, no more.
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-1: call @
// CHECK-NOT: call @
// CHECK: func.func private @reduction_{{.*}}(%{{.+}}: tensor<30xf32>)
// CHECK: tensor.extract
// CHECK: arith.maximumf
// APART-LABEL: func.func @main(
// APART: call @elementwise
// APART: call @reduction
func.func @main(%x: tensor<30xf32> {tilewright.name = "x", tilewright.role = "input"}) -> tensor<30xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c29 = arith.constant 29 : index
  %c = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<32xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%e : tensor<32xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %at = arith.subi %i, %c1 : index
    %near = arith.minsi %at, %c29 : index
    %there = arith.maxsi %near, %c0 : index
    %in = arith.cmpi eq, %there, %at : index
    %v = tensor.extract %x[%there] : tensor<30xf32>
    %r = arith.select %in, %v, %c : f32
    linalg.yield %r : f32
  } -> tensor<32xf32>
  %w = tensor.empty() : tensor<3xf32>
  %o = tensor.empty() : tensor<30xf32>
  %f = linalg.fill ins(%c : f32) outs(%o : tensor<30xf32>) -> tensor<30xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i + k)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%p, %w : tensor<32xf32>, tensor<3xf32>) outs(%f : tensor<30xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.maximumf %out, %a : f32
    linalg.yield %r : f32
  } -> tensor<30xf32>
  return %m : tensor<30xf32>
}
