// RUN: tilewright-opt %s --pass-pipeline='builtin.module(join-index-widths)' | filecheck %s

// CHECK-LABEL: llvm.func @index
// CHECK: %[[WIDE:.+]] = llvm.sext %arg0 : i32 to i64
// CHECK-NEXT: llvm.return %[[WIDE]] : i64
llvm.func @index(%i: i32) -> i64 {
  %0 = builtin.unrealized_conversion_cast %i : i32 to index
  %1 = builtin.unrealized_conversion_cast %0 : index to i64
  llvm.return %1 : i64
}

// CHECK-LABEL: llvm.func @descriptor
// CHECK: %[[POINTER:.+]] = llvm.extractvalue %arg0[1] : !llvm.struct<(ptr, ptr, i32, array<1 x i32>, array<1 x i32>)>
// CHECK: %[[NARROW:.+]] = llvm.extractvalue %arg0[3, 0] : !llvm.struct<(ptr, ptr, i32, array<1 x i32>, array<1 x i32>)>
// CHECK: %[[SIZE:.+]] = llvm.sext %[[NARROW]] : i32 to i64
// CHECK: llvm.getelementptr %[[POINTER]][%[[SIZE]]]
// CHECK-NOT: unrealized_conversion_cast
llvm.func @descriptor(%d: !llvm.struct<(ptr, ptr, i32, array<1 x i32>, array<1 x i32>)>) -> !llvm.ptr {
  %0 = builtin.unrealized_conversion_cast %d : !llvm.struct<(ptr, ptr, i32, array<1 x i32>, array<1 x i32>)> to memref<8xf32>
  %1 = builtin.unrealized_conversion_cast %0 : memref<8xf32> to !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %p = llvm.extractvalue %1[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %n = llvm.extractvalue %1[3, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %e = llvm.getelementptr %p[%n] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  llvm.return %e : !llvm.ptr
}

// Casts between equal types are left to `reconcile-unrealized-casts`; single casts stay.
// CHECK-LABEL: llvm.func @others
// CHECK: builtin.unrealized_conversion_cast %arg0 : i32 to index
// CHECK: builtin.unrealized_conversion_cast %{{.+}} : index to i32
llvm.func @others(%i: i32) -> i32 {
  %0 = builtin.unrealized_conversion_cast %i : i32 to index
  %1 = builtin.unrealized_conversion_cast %0 : index to i32
  llvm.return %1 : i32
}
