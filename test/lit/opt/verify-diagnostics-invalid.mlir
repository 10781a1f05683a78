// RUN: not tilewright-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s
// RUN: not tilewright-opt %s --split-input-file --verify-diagnostics=only-expected 2>&1 | filecheck %s --check-prefix=ONLY
// ONLY-NOT: unexpected error

// CHECK: verify-diagnostics-invalid.mlir:7:3: error: unexpected error: type of return operand 0
func.func @nobody_expects(%x: i32) -> i64 {
  return %x : i32
}

// -----

// CHECK: verify-diagnostics-invalid.mlir:14:4: error: expected warning "too warm" was not produced
// ONLY: expected warning "too warm" was not produced
// expected-warning @+1 {{too warm}}
func.func @never_comes() { return }

// -----

// The right words on the wrong line, or with the wrong severity, do not count.
// ONLY: expected note "type of return operand 0" was not produced
// CHECK: error: unexpected error: type of return operand 0
// CHECK: error: expected note "type of return operand 0" was not produced
func.func @severity(%x: i32) -> i64 {
  // expected-note @+1 {{type of return operand 0}}
  return %x : i32
}
