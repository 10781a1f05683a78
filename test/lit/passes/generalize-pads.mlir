// RUN: tilewright-opt %s --pass-pipeline='builtin.module(generalize-pads)' | filecheck %s

// Column j of the result reads column j - 1, clamped; outside of the source the constant is taken. Rows are not
// padded and are read as they are.
// CHECK-LABEL: func.func @pad(
// CHECK-NOT: tensor.pad
// CHECK: %[[FILL:.+]] = arith.constant -1.0
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<4x9xf32>)
// CHECK: %[[I:.+]] = linalg.index 0
// CHECK: %[[J:.+]] = linalg.index 1
// CHECK: %[[AT:.+]] = arith.subi %[[J]], %c1
// CHECK: %[[BELOW:.+]] = arith.minsi %[[AT]], %c5
// CHECK: %[[INSIDE:.+]] = arith.maxsi %c0, %[[BELOW]]
// CHECK: %[[HERE:.+]] = arith.cmpi eq, %[[INSIDE]], %[[AT]]
// CHECK: %[[READ:.+]] = tensor.extract %arg0[%[[I]], %[[INSIDE]]]
// CHECK: arith.select %[[HERE]], %[[READ]], %[[FILL]]
func.func @pad(%x: tensor<4x6xf32>) -> tensor<4x9xf32> {
  %c = arith.constant -1.0 : f32
  %p = tensor.pad %x low[0, 1] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<4x6xf32> to tensor<4x9xf32>
  return %p : tensor<4x9xf32>
}

// A negative pad crops.
// CHECK-LABEL: func.func @crop(
// CHECK: arith.constant -2 : index
// CHECK: tensor.extract
func.func @crop(%x: tensor<6xf32>) -> tensor<5xf32> {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[-2] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<5xf32>
  return %p : tensor<5xf32>
}

// CHECK-LABEL: func.func @value_of_its_own
// CHECK: tensor.pad
func.func @value_of_its_own(%x: tensor<6xi32>) -> tensor<8xi32> {
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    %v = arith.index_cast %i : index to i32
    tensor.yield %v : i32
  } : tensor<6xi32> to tensor<8xi32>
  return %p : tensor<8xi32>
}

// CHECK-LABEL: func.func @dynamic_shape
// CHECK: tensor.pad
func.func @dynamic_shape(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<?xf32> to tensor<?xf32>
  return %p : tensor<?xf32>
}

// CHECK-LABEL: func.func @dynamic_amount
// CHECK: tensor.pad
func.func @dynamic_amount(%x: tensor<6xf32>, %low: index, %high: index) -> tensor<8xf32> {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[%low] high[%high] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<6xf32> to tensor<8xf32>
  return %p : tensor<8xf32>
}

// There is no element that a clamped access could read.
// CHECK-LABEL: func.func @empty_source
// CHECK: tensor.pad
func.func @empty_source(%x: tensor<0xf32>) -> tensor<2xf32> {
  %c = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %c : f32
  } : tensor<0xf32> to tensor<2xf32>
  return %p : tensor<2xf32>
}
