// A run that succeeds leaves no reproducer; one that was asked for is written all the same.
// RUN: rm -f %t.crash %t.always
// RUN: tilewright-opt %s --cse --mlir-pass-pipeline-crash-reproducer=%t.crash --mlir-generate-reproducer=%t.always -o /dev/null
// RUN: not cat %t.crash
// RUN: tilewright-opt %t.always --run-reproducer --dump-pass-pipeline 2>&1 | filecheck %s

// CHECK: builtin.module(cse)
// CHECK: func.func @f
// CHECK-COUNT-1: arith.addi
// CHECK-NOT: arith.addi
func.func @f(%x: i32) -> (i32, i32) {
  %a = arith.addi %x, %x : i32
  %b = arith.addi %x, %x : i32
  return %a, %b : i32, i32
}
