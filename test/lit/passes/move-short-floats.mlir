// RUN: tilewright-opt %s --pass-pipeline='builtin.module(move-short-floats)' | filecheck %s

// CHECK-LABEL: llvm.func @copy(
// CHECK-SAME: %[[P:.+]]: !llvm.ptr, %[[Q:.+]]: !llvm.ptr)
// CHECK: %[[BITS:.+]] = llvm.load %[[P]] {alignment = 2 : i64} : !llvm.ptr -> i16
// CHECK: llvm.store %{{.+}}, %[[Q]] : i16, !llvm.ptr
llvm.func @copy(%p: !llvm.ptr, %q: !llvm.ptr) {
  %b = llvm.load %p {alignment = 2 : i64} : !llvm.ptr -> bf16
  llvm.store %b, %q : bf16, !llvm.ptr
  llvm.return
}

// CHECK-LABEL: llvm.func @choose(
// CHECK-SAME: %[[ANY:.+]]: i1, %[[A:.+]]: bf16, %[[B:.+]]: bf16)
// CHECK-DAG: %[[I:.+]] = llvm.bitcast %[[A]] : bf16 to i16
// CHECK-DAG: %[[J:.+]] = llvm.bitcast %[[B]] : bf16 to i16
// CHECK: %[[C:.+]] = llvm.select %[[ANY]], %[[I]], %[[J]] : i1, i16
// CHECK: llvm.bitcast %[[C]] : i16 to bf16
llvm.func @choose(%any: i1, %a: bf16, %b: bf16) -> bf16 {
  %c = llvm.select %any, %a, %b : i1, bf16
  llvm.return %c : bf16
}

// CHECK-LABEL: llvm.func @extend(
// CHECK: %[[LOW:.+]] = llvm.zext %{{.+}} : i16 to i32
// CHECK: %[[HIGH:.+]] = llvm.shl %[[LOW]], %{{.+}} : i32
// CHECK: llvm.bitcast %[[HIGH]] : i32 to f32
llvm.func @extend(%a: bf16) -> f32 {
  %f = llvm.fpext %a : bf16 to f32
  llvm.return %f : f32
}

// CHECK-LABEL: llvm.func @round(
// CHECK-SAME: %[[F:.+]]: f32)
// CHECK: %[[BITS:.+]] = llvm.bitcast %[[F]] : f32 to i32
// CHECK: %[[NAN:.+]] = llvm.fcmp "uno" %[[F]], %[[F]] : f32
// CHECK: %[[FOUND:.+]] = llvm.select %[[NAN]], %{{.+}}, %{{.+}} : i1, i32
// CHECK: llvm.trunc %[[FOUND]] : i32 to i16
// CHECK-NOT: llvm.fptrunc
llvm.func @round(%f: f32) -> bf16 {
  %a = llvm.fptrunc %f : f32 to bf16
  llvm.return %a : bf16
}

// CHECK-LABEL: llvm.func @add(
// CHECK: %[[S:.+]] = llvm.fadd %{{.+}}, %{{.+}} : f32
// CHECK: llvm.bitcast %[[S]] : f32 to i32
llvm.func @add(%a: bf16, %b: bf16) -> bf16 {
  %s = llvm.fadd %a, %b : bf16
  llvm.return %s : bf16
}

// CHECK-LABEL: llvm.func @from_double(
// CHECK: llvm.fptrunc %{{.+}} : f64 to f32
llvm.func @from_double(%d: f64) -> bf16 {
  %a = llvm.fptrunc %d : f64 to bf16
  llvm.return %a : bf16
}

// CHECK-LABEL: llvm.func @larger(
// CHECK: %[[M:.+]] = llvm.intr.maximum(%{{.+}}, %{{.+}}) : (vector<8xf32>, vector<8xf32>) -> vector<8xf32>
// CHECK: %[[BITS:.+]] = llvm.bitcast %[[M]] : vector<8xf32> to vector<8xi32>
// CHECK: %[[HIGH:.+]] = llvm.lshr %[[BITS]], %{{.+}} : vector<8xi32>
// CHECK: llvm.trunc %[[HIGH]] : vector<8xi32> to vector<8xi16>
llvm.func @larger(%a: vector<8xbf16>, %b: vector<8xbf16>) -> vector<8xbf16> {
  %m = llvm.intr.maximum(%a, %b) : (vector<8xbf16>, vector<8xbf16>) -> vector<8xbf16>
  llvm.return %m : vector<8xbf16>
}

// CHECK-LABEL: llvm.func @round_many(
// CHECK: llvm.load %{{.+}} : !llvm.ptr -> vector<4xf64>
// CHECK: %[[F:.+]] = llvm.fptrunc %{{.+}} : vector<4xf64> to vector<4xf32>
// CHECK: llvm.fcmp "uno" %[[F]], %[[F]] : vector<4xf32>
// CHECK-NOT: llvm.fptrunc
// CHECK: llvm.store %{{.+}}, %{{.+}} : vector<4xi16>, !llvm.ptr
llvm.func @round_many(%p: !llvm.ptr, %q: !llvm.ptr) {
  %d = llvm.load %p : !llvm.ptr -> vector<4xf64>
  %a = llvm.fptrunc %d : vector<4xf64> to vector<4xbf16>
  llvm.store %a, %q : vector<4xbf16>, !llvm.ptr
  llvm.return
}

// CHECK-LABEL: llvm.func @largest(
// CHECK: llvm.intr.vector.reduce.fmaximum(%{{.+}}) : (vector<8xf32>) -> f32
llvm.func @largest(%a: vector<8xbf16>) -> bf16 {
  %m = llvm.intr.vector.reduce.fmaximum(%a) : (vector<8xbf16>) -> bf16
  llvm.return %m : bf16
}

// What moves vectors, and other types, stay.
// CHECK-LABEL: llvm.func @others(
// CHECK-NEXT: llvm.intr.masked.load %{{.+}} : (!llvm.ptr, vector<8xi1>, vector<8xbf16>) -> vector<8xbf16>
// CHECK-NEXT: llvm.load %{{.+}} : !llvm.ptr -> f16
// CHECK-NEXT: llvm.fptrunc %{{.+}} : f64 to f32
// CHECK-NEXT: llvm.return
llvm.func @others(%p: !llvm.ptr, %d: f64, %m: vector<8xi1>, %e: vector<8xbf16>) -> vector<8xbf16> {
  %v = llvm.intr.masked.load %p, %m, %e {alignment = 2 : i32} : (!llvm.ptr, vector<8xi1>, vector<8xbf16>) -> vector<8xbf16>
  %h = llvm.load %p : !llvm.ptr -> f16
  %f = llvm.fptrunc %d : f64 to f32
  llvm.return %v : vector<8xbf16>
}
