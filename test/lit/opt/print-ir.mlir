// RUN: tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies,func.func(cse,canonicalize{max-iterations=1}))' --mlir-print-ir-after-all -o /dev/null 2>&1 | filecheck %s --check-prefix=AFTER
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies,func.func(cse))' --mlir-print-ir-before-all -o /dev/null 2>&1 | filecheck %s --check-prefix=BEFORE
// RUN: tilewright-opt %s --simplify-bodies --cse --canonicalize --mlir-print-ir-after=cse --mlir-print-ir-before=simplify-bodies,canonicalize -o /dev/null 2>&1 | filecheck %s --check-prefix=ONE
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies,func.func(cse))' --mlir-print-ir-after-change --mlir-print-ir-module-scope -o /dev/null 2>&1 | filecheck %s --check-prefix=CHANGE
// RUN: tilewright-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: tilewright-opt %s --mlir-print-debuginfo --mlir-print-local-scope | filecheck %s --check-prefix=LOCAL
// RUN: tilewright-opt %s --emit-bytecode -o %t.mlirbc && tilewright-opt %t.mlirbc | filecheck %s --check-prefix=BYTECODE

// Passes on functions print them one by one, in order.
// AFTER: // -----// IR Dump After simplify-bodies //----- //
// AFTER-NEXT: module {
// AFTER: // -----// IR Dump After cse //----- //
// AFTER-NEXT: func.func @first
// AFTER: // -----// IR Dump After canonicalize{max-iterations=1} //----- //
// AFTER-NEXT: func.func @first
// AFTER: // -----// IR Dump After cse //----- //
// AFTER-NEXT: func.func @second
// AFTER-COUNT-1: arith.addi
// AFTER-NEXT: return

// BEFORE: // -----// IR Dump Before simplify-bodies //----- //
// BEFORE-NEXT: module {
// BEFORE: // -----// IR Dump Before cse //----- //
// BEFORE-NEXT: func.func @first
// BEFORE-NOT: After

// ONE: // -----// IR Dump Before simplify-bodies //----- //
// ONE-NOT: IR Dump After simplify-bodies
// ONE-NOT: IR Dump Before cse
// ONE: // -----// IR Dump After cse //----- //
// ONE: // -----// IR Dump Before canonicalize //----- //
// ONE-NOT: IR Dump

// CHANGE-NOT: IR Dump After simplify-bodies
// CHANGE: // -----// IR Dump After cse ('func.func' operation: @second) //----- //
// CHANGE-NEXT: module {
// CHANGE-NEXT: func.func @first

// GENERIC: "builtin.module"() ({
// GENERIC: "func.func"() <{{.*}}sym_name = "first"
// LOCAL: arith.addi %{{.*}} : i32 loc("{{.*}}print-ir.mlir":{{[0-9]+}}:8)
// BYTECODE: func.func @first
func.func @first() { return }
func.func @second(%x: i32) -> (i32, i32) {
  %a = arith.addi %x, %x : i32
  %b = arith.addi %x, %x : i32
  return %a, %b : i32, i32
}
