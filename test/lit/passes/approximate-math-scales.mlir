// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(approximate-math{scales=true}))' | filecheck %s

// Where there is an instruction for x 2^n, exponent fields are not put together by hand.
// CHECK-LABEL: func.func @vectors
// CHECK-NOT: arith.shli
// CHECK: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"(%[[X:.+]], %{{.+}}, %[[X]], %c-1_i16, %c4_i32)
func.func @vectors(%x: vector<16xf32>) -> vector<16xf32> {
  %e = math.exp %x : vector<16xf32>
  return %e : vector<16xf32>
}

// LLVM vectorises scalars, and widens short vectors.
// CHECK-LABEL: func.func @short
// CHECK: llvm.call_intrinsic "llvm.ldexp"(%{{.+}}, %{{.+}}) : (vector<8xf32>, vector<8xi32>) -> vector<8xf32>
func.func @short(%x: vector<8xf32>) -> vector<8xf32> {
  %e = math.exp %x : vector<8xf32>
  return %e : vector<8xf32>
}

// CHECK-LABEL: func.func @scalars
// CHECK: llvm.call_intrinsic "llvm.ldexp"(%{{.+}}, %{{.+}}) : (f32, i32) -> f32
func.func @scalars(%x: bf16) -> bf16 {
  %e = math.exp2 %x : bf16
  return %e : bf16
}

// What needs 2^n itself makes it.
// CHECK-LABEL: func.func @others
// CHECK: arith.shli
func.func @others(%x: f32) -> f32 {
  %e = math.expm1 %x : f32
  return %e : f32
}
