// RUN: tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies,canonicalize,func.func(cse))' --mlir-timing -o /dev/null 2>&1 | filecheck %s

// CHECK: ... Execution time report ...
// CHECK: Total Execution Time: {{[0-9]+\.[0-9]+}} seconds
// CHECK: ----Wall Time----  ----Name----
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}}  Parser
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}}  simplify-bodies
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}}  canonicalize
// A pass that ran on two functions has one line.
// CHECK-NEXT: {{[0-9.]+ \( *[0-9.]+%\)}}  'func.func' cse
// CHECK-NEXT: Output
// CHECK-NEXT: Rest
// CHECK-NEXT: {{[0-9.]+ \(100.0%\)}}  Total
func.func @f() { return }
func.func @g() { return }
