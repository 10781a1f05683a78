// RUN: tilewright-opt %s --pass-pipeline='builtin.module(attach-loop-annotations)' | filecheck %s

#rolled = #llvm.loop_annotation<unroll = <disable = true>>

// CHECK: #[[ANNOTATION:.+]] = #llvm.loop_annotation<
// CHECK-LABEL: llvm.func @loop(
// CHECK: llvm.br ^bb1(%{{.+}} : i64){{$}}
// CHECK: llvm.br ^bb1(%{{.+}} : i64) {loop_annotation = #[[ANNOTATION]]}
llvm.func @loop(%n: i64) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  llvm.br ^bb1(%zero : i64)
^bb1(%i: i64):
  %more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %more, ^bb2, ^bb3
^bb2:
  %next = llvm.add %i, %one : i64
  llvm.br ^bb1(%next : i64) {llvm.loop_annotation = #rolled}
^bb3:
  llvm.return
}
