// RUN: tilewright-opt --show-dialects | filecheck %s
// RUN: tilewright-opt --list-passes | filecheck %s --check-prefix=PASSES
// RUN: tilewright-opt --help | filecheck %s --check-prefix=HELP

// CHECK: Registered Dialects:
// CHECK: affine
// CHECK-SAME: func
// CHECK-SAME: linalg
// CHECK-SAME: torch

// PASSES: simplify-bodies  (on builtin.module)
// PASSES-NEXT: Linalg bodies keep only what PyTorch computes and somebody reads.
// PASSES-NEXT: generalize=<true|false>  (default true)

// HELP: usage: tilewright-opt [FILE] [--pass-pipeline=TEXT | --PASS[=OPTIONS] ...] [flags]
