// RUN: tilewright-opt %s --pass-pipeline='builtin.module(form-kernels)' | filecheck %s

// Arguments: the rTask, inputs, results, status word, scratch; no two buffers overlap.
// CHECK-LABEL: func.func @two_results(
// CHECK-SAME: %[[TASK:[a-z0-9]+]]: index, %[[A:[a-z0-9]+]]: memref<4xf32> {llvm.noalias}, %[[B:[a-z0-9]+]]: memref<2x4xi8> {llvm.noalias},
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<4xf32> {llvm.noalias}, %[[S:[a-z0-9]+]]: memref<2x4xi8> {llvm.noalias},
// CHECK-SAME: %{{[a-z0-9]+}}: memref<1xi32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<1099511627776xi8> {llvm.noalias}) {
// CHECK-DAG: %[[TA:.+]] = bufferization.to_tensor %[[A]] restrict
// CHECK-DAG: %[[TB:.+]] = bufferization.to_tensor %[[B]] restrict
// CHECK: %[[EXP:.+]] = linalg.exp ins(%[[TA]]
// CHECK: bufferization.materialize_in_destination %[[EXP]] in restrict writable %[[R]]
// An argument that is returned is copied.
// CHECK: bufferization.materialize_in_destination %[[TB]] in restrict writable %[[S]]
// CHECK-NEXT: return{{$}}
func.func private @two_results(%a: tensor<4xf32>, %b: tensor<2x4xi8>) -> (tensor<4xf32>, tensor<2x4xi8>) {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %0, %b : tensor<4xf32>, tensor<2x4xi8>
}

// CHECK-LABEL: func.func @no_inputs(%{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: memref<f32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<1xi32>
func.func private @no_inputs() -> tensor<f32> {
  %c = arith.constant dense<1.0> : tensor<f32>
  return %c : tensor<f32>
}
