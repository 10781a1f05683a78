// RUN: not tilewright-opt %s --split-input-file --no-implicit-module 2>&1 | filecheck %s --check-prefix=BARE
// RUN: not tilewright-opt %s --split-input-file 2>&1 | filecheck %s
// RUN: tilewright-opt %s --split-input-file --allow-unregistered-dialect | filecheck %s --check-prefix=ALLOWED

// BARE: error: source must contain a single top-level operation, found: 2
func.func private @one()
func.func private @two()

// -----

// CHECK: input-forms-invalid.mlir:13:13: error: operation being parsed with an unregistered dialect
// ALLOWED: "foreign.op"
"foreign.op"() : () -> ()
