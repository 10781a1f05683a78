// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(bufferize-lines),one-shot-bufferize,canonicalize,cse)' | filecheck %s

// What is scanned is read, and the results are written, where they lie.
// CHECK-LABEL: func.func @scan(
// CHECK-SAME: %[[X:.+]]: memref<6x30xf32>, %[[Y:.+]]: memref<6x30xf32>, %[[LAST:.+]]: memref<6xf32>
// CHECK-NOT: memref.alloc
// CHECK: linalg.fill {{.*}} outs(%[[Y]]
// CHECK: tm_tensor.scan {{.*}} ins(%[[X]]{{.*}}) outs(%[[Y]], %[[LAST]]
// CHECK-NOT: memref.copy
// CHECK: return
func.func @scan(%x: memref<6x30xf32>, %y: memref<6x30xf32>, %last: memref<6xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = bufferization.to_tensor %x restrict : memref<6x30xf32> to tensor<6x30xf32>
  %e = tensor.empty() : tensor<6x30xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x30xf32>) -> tensor<6x30xf32>
  %g = tensor.empty() : tensor<6xf32>
  %r:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%t : tensor<6x30xf32>) outs(%f, %g : tensor<6x30xf32>, tensor<6xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<6x30xf32>, tensor<6xf32>
  bufferization.materialize_in_destination %r#0 in restrict writable %y : (tensor<6x30xf32>, memref<6x30xf32>) -> ()
  bufferization.materialize_in_destination %r#1 in restrict writable %last : (tensor<6xf32>, memref<6xf32>) -> ()
  return
}

// A scatter begins with a copy of what it changes.
// CHECK-LABEL: func.func @scatter(
// CHECK-SAME: %[[X:[^,]+]]: memref<5x40xf32>, %[[OUT:.+]]: memref<5x40xf32>
// CHECK-NOT: memref.alloc
// CHECK: memref.copy %[[X]], %[[OUT]]
// CHECK: tm_tensor.scatter {{.*}} outs(%[[OUT]] : memref<5x40xf32>)
// CHECK-NOT: memref.copy
// CHECK: return
func.func @scatter(%u: memref<9x1x40xf32>, %at: memref<9x1xi64>, %x: memref<5x40xf32>, %out: memref<5x40xf32>) {
  %t = bufferization.to_tensor %u restrict : memref<9x1x40xf32> to tensor<9x1x40xf32>
  %n = bufferization.to_tensor %at restrict : memref<9x1xi64> to tensor<9x1xi64>
  %o = bufferization.to_tensor %x restrict : memref<5x40xf32> to tensor<5x40xf32>
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%t, %n : tensor<9x1x40xf32>, tensor<9x1xi64>) outs(%o : tensor<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    %s = arith.addf %old, %new : f32
    tm_tensor.yield %s : f32
  } -> tensor<5x40xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<5x40xf32>, memref<5x40xf32>) -> ()
  return
}

// But for one that changes it where it lies.
// CHECK-LABEL: func.func @over(
// CHECK-NOT: memref.copy
// CHECK: tm_tensor.scatter {{.*}} outs(%arg2 : memref<5x40xf32>)
// CHECK-NOT: memref.copy
// CHECK: return
func.func @over(%u: memref<9x1x40xf32>, %at: memref<9x1xi64>, %out: memref<5x40xf32>) {
  %t = bufferization.to_tensor %u restrict : memref<9x1x40xf32> to tensor<9x1x40xf32>
  %n = bufferization.to_tensor %at restrict : memref<9x1xi64> to tensor<9x1xi64>
  %o = bufferization.to_tensor %out restrict writable : memref<5x40xf32> to tensor<5x40xf32>
  %r = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(true) ins(%t, %n : tensor<9x1x40xf32>, tensor<9x1xi64>) outs(%o : tensor<5x40xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32
  } -> tensor<5x40xf32>
  bufferization.materialize_in_destination %r in restrict writable %out : (tensor<5x40xf32>, memref<5x40xf32>) -> ()
  return
}

// What something else reads has a buffer of its own, and what was sorted stays as it was.
// CHECK-LABEL: func.func @read_again(
// CHECK-SAME: %[[V:.+]]: memref<5xi32>, %[[OUT:.+]]: memref<5xi32>
// CHECK: %[[OWN:.+]] = memref.alloc() {{.*}} : memref<5xi32>
// CHECK-DAG: memref.copy %[[V]], %[[OWN]]
// CHECK-DAG: %[[CAST:.+]] = memref.cast %[[OWN]]
// CHECK: tm_tensor.sort dimension(0) outs(%[[CAST]]
// CHECK: linalg.add ins(%[[OWN]], %[[V]]
func.func @read_again(%v: memref<5xi32>, %out: memref<5xi32>) {
  %t = bufferization.to_tensor %v restrict : memref<5xi32> to tensor<5xi32>
  %r = tm_tensor.sort dimension(0) outs(%t : tensor<5xi32>) {
  ^bb0(%a: i32, %b: i32):
    %c = arith.cmpi sle, %a, %b : i32
    tm_tensor.yield %c : i1
  } -> tensor<5xi32>
  %e = tensor.empty() : tensor<5xi32>
  %s = linalg.add ins(%r, %t : tensor<5xi32>, tensor<5xi32>) outs(%e : tensor<5xi32>) -> tensor<5xi32>
  bufferization.materialize_in_destination %s in restrict writable %out : (tensor<5xi32>, memref<5xi32>) -> ()
  return
}
