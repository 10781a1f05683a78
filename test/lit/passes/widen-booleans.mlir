// RUN: tilewright-opt %s --pass-pipeline='builtin.module(widen-booleans)' | filecheck %s

// CHECK-LABEL: llvm.func @copy(
// CHECK-SAME: %[[P:.+]]: !llvm.ptr, %[[Q:.+]]: !llvm.ptr)
// CHECK: %[[BYTE:.+]] = llvm.load %[[P]] {alignment = 1 : i64} : !llvm.ptr -> i8
// CHECK: %[[BIT:.+]] = llvm.trunc %[[BYTE]] : i8 to i1
// CHECK: %[[BACK:.+]] = llvm.zext %[[BIT]] : i1 to i8
// CHECK: llvm.store %[[BACK]], %[[Q]] : i8, !llvm.ptr
llvm.func @copy(%p: !llvm.ptr, %q: !llvm.ptr) {
  %b = llvm.load %p {alignment = 1 : i64} : !llvm.ptr -> i1
  llvm.store %b, %q : i1, !llvm.ptr
  llvm.return
}

// Other types stay.
// CHECK-LABEL: llvm.func @floats(
// CHECK-NEXT: llvm.load %{{.+}} : !llvm.ptr -> f32
// CHECK-NEXT: llvm.store %{{.+}} : f32, !llvm.ptr
llvm.func @floats(%p: !llvm.ptr, %q: !llvm.ptr) {
  %b = llvm.load %p : !llvm.ptr -> f32
  llvm.store %b, %q : f32, !llvm.ptr
  llvm.return
}
