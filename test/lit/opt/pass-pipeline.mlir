// RUN: tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies{generalize=false}, func.func(cse, canonicalize{max-iterations=2}), any(cse))' \
// RUN:   --dump-pass-pipeline 2>&1 | filecheck %s
// RUN: tilewright-opt %s --simplify-bodies=generalize=false --cse --canonicalize="max-iterations=2 top-down=true" --dump-pass-pipeline 2>&1 \
// RUN:   | filecheck %s --check-prefix=FLAGS
// RUN: tilewright-opt %s -cse -llvm-request-c-wrappers 2>&1 | filecheck %s --check-prefix=NESTED
// RUN: tilewright-opt --canonicalize="max-iterations=2 top-down=true" -cse < %s | filecheck %s --check-prefix=ANY
// RUN: tilewright-opt < %s --pass-pipeline='any(cse)' | filecheck %s --check-prefix=ANY
// RUN: tilewright-opt - --pass-pipeline='builtin.module()' -o %t < %s && filecheck %s --check-prefix=NOTHING < %t

// CHECK: Pass Manager with 3 passes:
// CHECK-NEXT: builtin.module(simplify-bodies{generalize=false},func.func(cse,canonicalize{max-iterations=2}),any(cse))
// FLAGS: builtin.module(simplify-bodies{generalize=false},cse,canonicalize{max-iterations=2 top-down=true})

// CHECK-LABEL: func.func @twice
// CHECK-COUNT-1: math.sqrt
// CHECK-NOT: math.sqrt
// CHECK: return
// A pass restricted to functions is nested in one, as mlir-opt does with flags.
// NESTED: func.func @twice({{.*}}) -> (f32, f32) attributes {llvm.emit_c_interface}
// ANY-COUNT-1: math.sqrt
// ANY-NOT: math.sqrt
// NOTHING: math.sqrt
// NOTHING: math.sqrt
func.func @twice(%x: f32) -> (f32, f32) {
  %a = math.sqrt %x : f32
  %b = math.sqrt %x : f32
  return %a, %b : f32, f32
}
