// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(restrict-tensors))' | filecheck %s

// CHECK-LABEL: func.func @fresh
// CHECK: bufferization.to_tensor %{{.+}} restrict : memref<8xf32>
func.func @fresh() -> tensor<8xf32> {
  %a = memref.alloc() : memref<8xf32>
  %t = bufferization.to_tensor %a : memref<8xf32> to tensor<8xf32>
  return %t : tensor<8xf32>
}

// CHECK-LABEL: func.func @others
// CHECK: bufferization.to_tensor %arg0 : memref<8xf32>
// CHECK: bufferization.to_tensor %{{.+}} : memref<8xf32>
// CHECK: bufferization.to_tensor %{{.+}} : memref<8xf32>
func.func @others(%b: memref<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %a = memref.alloc() : memref<8xf32>
  %s = bufferization.to_tensor %b : memref<8xf32> to tensor<8xf32>
  %t = bufferization.to_tensor %a : memref<8xf32> to tensor<8xf32>
  %u = bufferization.to_tensor %a : memref<8xf32> to tensor<8xf32>
  return %s, %t, %u : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
