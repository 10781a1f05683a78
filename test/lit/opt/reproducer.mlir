// A failing pass leaves the input and the whole pipeline behind, and the file fails in the same way again.
// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse,sccp,one-shot-bufferize{allow-unknown-ops=false})' --mlir-pass-pipeline-crash-reproducer=%t.mlir --allow-unregistered-dialect 2>&1 | filecheck %s
// RUN: filecheck %s --check-prefix=FILE --input-file %t.mlir
// RUN: not tilewright-opt %t.mlir --run-reproducer --allow-unregistered-dialect 2>&1 | filecheck %s --check-prefix=AGAIN

// CHECK: reproducer.mlir:19:8: error: op was not bufferized
// CHECK: error: Failures have been detected while processing an MLIR pass pipeline
// CHECK: note: Pipeline failed while executing [`one-shot-bufferize{allow-unknown-ops=false}` on 'builtin.module' operation]: reproducer generated at `{{.*}}.mlir`

// FILE: func.func @f
// FILE: "some.op"
// FILE: {-#
// FILE: mlir_reproducer: {
// FILE-NEXT: pipeline: "builtin.module(cse,sccp,one-shot-bufferize{allow-unknown-ops=false})",
// FILE: verify_each: true

// AGAIN: reproducer.mlir:19:8: error: op was not bufferized
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "some.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
