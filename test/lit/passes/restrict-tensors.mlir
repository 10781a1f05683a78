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

// What is read as a buffer is not written meanwhile.
// CHECK-LABEL: func.func @read_later
// CHECK-DAG: %[[A:.+]] = tensor.empty() : tensor<8xf32>
// CHECK-DAG: %[[B:.+]] = tensor.empty() : tensor<8xf32>
// CHECK-DAG: linalg.fill {{.*}} outs(%[[A]] :
// CHECK-DAG: linalg.fill {{.*}} outs(%[[B]] :
// CHECK: return
func.func @read_later(%one: f32, %zero: f32) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %x = linalg.fill ins(%one : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %b = bufferization.to_buffer %x : tensor<8xf32> to memref<8xf32>
  %y = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %a = memref.alloc() : memref<8xf32>
  memref.copy %b, %a : memref<8xf32> to memref<8xf32>
  return %y : tensor<8xf32>
}

// Nothing is: memory may be shared.
// CHECK-LABEL: func.func @shared
// CHECK-COUNT-1: tensor.empty
// CHECK-NOT: tensor.empty
func.func @shared(%one: f32, %zero: f32) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %x = linalg.fill ins(%one : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %y = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %x, %y : tensor<8xf32>, tensor<8xf32>
}
