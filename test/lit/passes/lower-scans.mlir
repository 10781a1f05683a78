// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(lower-scans{vector-bits=256}))' | filecheck %s

// Along memory: four lines side by side, then what is left of them; sums of f32 are carried as f64.
// CHECK-LABEL: func.func @rows(
// CHECK: scf.for {{.*}} -> (f64, f64, f64, f64) {
// CHECK: arith.truncf
// CHECK: scf.for {{.*}} -> (f64, f64) {
func.func @rows(%x: memref<6x30xf32>, %y: memref<6x30xf32>, %last: memref<6xf32>) {
  tm_tensor.scan dimension(1) inclusive(true) ins(%x : memref<6x30xf32>) outs(%y, %last : memref<6x30xf32>, memref<6xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}

// Across memory: vectors of lines.
// CHECK-LABEL: func.func @columns(
// CHECK: vector.load %{{.+}} : memref<30x16xi32>, vector<8xi32>
// CHECK: scf.for {{.*}} -> (vector<8xi32>, vector<8xi32>)
// CHECK: arith.addi {{.*}} : vector<8xi32>
func.func @columns(%x: memref<30x16xi32>, %y: memref<30x16xi32>, %last: memref<16xi32>) {
  tm_tensor.scan dimension(0) inclusive(true) ins(%x : memref<30x16xi32>) outs(%y, %last : memref<30x16xi32>, memref<16xi32>) {
  ^bb0(%before: i32, %new: i32):
    %s = arith.addi %before, %new : i32
    tm_tensor.yield %s : i32
  }
  return
}

// Maxima are carried as sums are.
// CHECK-LABEL: func.func @greatest(
// CHECK: scf.for {{.*}} -> (f32, f32, f32, f32) {
// CHECK: arith.maximumf
func.func @greatest(%x: memref<4x30xf32>, %y: memref<4x30xf32>, %last: memref<4xf32>) {
  tm_tensor.scan dimension(1) inclusive(true) ins(%x : memref<4x30xf32>) outs(%y, %last : memref<4x30xf32>, memref<4xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.maximumf %before, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}

// All of the results is written: what filled them before is not needed.
// CHECK-LABEL: func.func @filled(
// CHECK-NOT: linalg.fill
// CHECK: return
func.func @filled(%x: memref<6x30xf32>, %y: memref<6x30xf32>, %last: memref<6xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%y : memref<6x30xf32>)
  linalg.fill ins(%zero : f32) outs(%last : memref<6xf32>)
  tm_tensor.scan dimension(1) inclusive(true) ins(%x : memref<6x30xf32>) outs(%y, %last : memref<6x30xf32>, memref<6xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  }
  return
}

// What fills them once the scan is done stays.
// CHECK-LABEL: func.func @filled_later(
// CHECK: linalg.fill
func.func @filled_later(%x: memref<6x30xf32>, %y: memref<6x30xf32>, %last: memref<6xf32>) {
  %zero = arith.constant 0.0 : f32
  tm_tensor.scan dimension(1) inclusive(true) ins(%x : memref<6x30xf32>) outs(%y, %last : memref<6x30xf32>, memref<6xf32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  }
  linalg.fill ins(%zero : f32) outs(%y : memref<6x30xf32>)
  return
}

// Almost: exclusive, of more than one operation, and with a number from outside. Upstream's loops are for them.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-3: tm_tensor.scan
func.func @others(%c: f32, %x: memref<30xf32>, %y: memref<30xf32>, %last: memref<f32>) {
  tm_tensor.scan dimension(0) inclusive(false) ins(%x : memref<30xf32>) outs(%y, %last : memref<30xf32>, memref<f32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %new : f32
    tm_tensor.yield %s : f32
  }
  tm_tensor.scan dimension(0) inclusive(true) ins(%x : memref<30xf32>) outs(%y, %last : memref<30xf32>, memref<f32>) {
  ^bb0(%before: f32, %new: f32):
    %t = arith.mulf %before, %before : f32
    %s = arith.addf %t, %new : f32
    tm_tensor.yield %s : f32
  }
  tm_tensor.scan dimension(0) inclusive(true) ins(%x : memref<30xf32>) outs(%y, %last : memref<30xf32>, memref<f32>) {
  ^bb0(%before: f32, %new: f32):
    %s = arith.addf %before, %c : f32
    tm_tensor.yield %s : f32
  }
  return
}
