// RUN: tilewright-opt %s --split-input-file --canonicalize | filecheck %s
// RUN: tilewright-opt %s --split-input-file --mlir-print-debuginfo --mlir-print-local-scope | filecheck %s --check-prefix=LOC

// A part may define what another defines too, and several operations become one module.

// CHECK-LABEL: module
// CHECK: func.func @f
// CHECK: func.func @g
// LOC: func.func @f
// LOC: loc("{{.*}}split-input-file.mlir":11:1)
func.func @f() { return }
func.func @g() { return }

// CHECK: // -----
// -----

// Locations count lines of the whole file.
// CHECK-LABEL: module
// CHECK: func.func @f
// LOC: func.func @f
// LOC: loc("{{.*}}split-input-file.mlir":22:1)
func.func @f() { return }
