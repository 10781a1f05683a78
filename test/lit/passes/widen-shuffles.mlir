// RUN: tilewright-opt %s --pass-pipeline='builtin.module(widen-shuffles)' | filecheck %s

// CHECK-LABEL: func.func @half
// CHECK: %[[BITS:.+]] = arith.bitcast %arg0 : f16 to i16
// CHECK: %[[WORD:.+]] = arith.extui %[[BITS]] : i16 to i32
// CHECK: %[[MOVED:.+]], %[[VALID:.+]] = gpu.shuffle  xor %[[WORD]], %arg1, %arg2 : i32
// CHECK: %[[LOW:.+]] = arith.trunci %[[MOVED]] : i32 to i16
// CHECK: %[[FOUND:.+]] = arith.bitcast %[[LOW]] : i16 to f16
// CHECK: return %[[FOUND]], %[[VALID]]
func.func @half(%x: f16, %offset: i32, %width: i32) -> (f16, i1) {
  %r, %v = gpu.shuffle xor %x, %offset, %width : f16
  return %r, %v : f16, i1
}

// CHECK-LABEL: func.func @boolean
// CHECK: arith.extui %arg0 : i1 to i32
// CHECK: gpu.shuffle  idx
// CHECK: arith.trunci %{{.+}} : i32 to i1
func.func @boolean(%x: i1, %offset: i32, %width: i32) -> i1 {
  %r, %v = gpu.shuffle idx %x, %offset, %width : i1
  return %r : i1
}

// CHECK-LABEL: func.func @pair
// CHECK: vector.bitcast %arg0 : vector<2xbf16> to vector<1xi32>
// CHECK: gpu.shuffle  down %{{.+}}, %arg1, %arg2 : i32
// CHECK: vector.bitcast %{{.+}} : vector<1xi32> to vector<2xbf16>
func.func @pair(%x: vector<2xbf16>, %offset: i32, %width: i32) -> vector<2xbf16> {
  %r, %v = gpu.shuffle down %x, %offset, %width : vector<2xbf16>
  return %r : vector<2xbf16>
}

// Words and longer scalars stay.
// CHECK-LABEL: func.func @words
// CHECK: gpu.shuffle  up %arg0, %arg2, %arg3 : f32
// CHECK: gpu.shuffle  up %arg1, %arg2, %arg3 : i64
func.func @words(%x: f32, %y: i64, %offset: i32, %width: i32) -> (f32, i64) {
  %r, %v = gpu.shuffle up %x, %offset, %width : f32
  %q, %w = gpu.shuffle up %y, %offset, %width : i64
  return %r, %q : f32, i64
}
