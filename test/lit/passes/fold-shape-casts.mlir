// RUN: tilewright-opt %s --pass-pipeline='builtin.module(fold-shape-casts)' | filecheck %s

// CHECK-LABEL: func.func @casts
// CHECK: %[[C:.+]] = tensor.concat dim(1) %arg0, %arg1 : (tensor<8x3xf32>, tensor<8x5xf32>) -> tensor<8x8xf32>
// CHECK: return %[[C]]
func.func @casts(%s: tensor<8x3xf32>, %t: tensor<8x5xf32>) -> tensor<8x8xf32> {
  %a = tensor.cast %s : tensor<8x3xf32> to tensor<8x?xf32>
  %b = tensor.cast %t : tensor<8x5xf32> to tensor<8x?xf32>
  %c = tensor.concat dim(1) %a, %b : (tensor<8x?xf32>, tensor<8x?xf32>) -> tensor<8x8xf32>
  return %c : tensor<8x8xf32>
}

// CHECK-LABEL: func.func @dynamic_result
// CHECK: %[[C:.+]] = tensor.concat dim(0) %arg0, %arg0 {{.*}}-> tensor<16x3xf32>
// CHECK: tensor.cast %[[C]] : tensor<16x3xf32> to tensor<?x3xf32>
func.func @dynamic_result(%s: tensor<8x3xf32>) -> tensor<?x3xf32> {
  %c = tensor.concat dim(0) %s, %s : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<?x3xf32>
  return %c : tensor<?x3xf32>
}

// CHECK-LABEL: func.func @unknown_stays
// CHECK: tensor.concat dim(1) %{{.+}}, %arg1 : (tensor<8x?xf32>, tensor<8x?xf32>)
func.func @unknown_stays(%s: tensor<8x3xf32>, %t: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %a = tensor.cast %s : tensor<8x3xf32> to tensor<8x?xf32>
  %c = tensor.concat dim(1) %a, %t : (tensor<8x?xf32>, tensor<8x?xf32>) -> tensor<8x?xf32>
  return %c : tensor<8x?xf32>
}
