// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(approximate-math))' | filecheck %s

// CHECK-LABEL: func.func @vectors
// CHECK-NOT: math.exp
// CHECK: math.fma %{{.+}} : vector<16xf32>
// CHECK: arith.shli %{{.+}} : vector<16xi32>
// CHECK: arith.bitcast %{{.+}} : vector<16xi32> to vector<16xf32>
func.func @vectors(%x: vector<16xf32>) -> vector<16xf32> {
  %e = math.exp %x : vector<16xf32>
  return %e : vector<16xf32>
}

// In a linalg body the operands are scalars.
// CHECK-LABEL: func.func @bodies
// CHECK: linalg.generic
// CHECK-NOT: math.tanh
// CHECK: math.fma %{{.+}} : f32
// CHECK: linalg.yield
func.func @bodies(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %t = math.tanh %in : f32
    linalg.yield %t : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @half_is_computed_in_f32
// CHECK: arith.extf %arg0 : f16 to f32
// CHECK: math.fma %{{.+}} : f32
// CHECK: arith.truncf %{{.+}} : f32 to f16
func.func @half_is_computed_in_f32(%x: f16) -> f16 {
  %r = math.erf %x : f16
  return %r : f16
}

// CHECK-LABEL: func.func @rare_half_is_widened
// CHECK: %[[W:.+]] = arith.extf %arg0 : bf16 to f32
// CHECK: %[[C:.+]] = math.cbrt %[[W]] : f32
// CHECK: arith.truncf %[[C]] : f32 to bf16
func.func @rare_half_is_widened(%x: bf16) -> bf16 {
  %r = math.cbrt %x : bf16
  return %r : bf16
}

// In f64 the same, with more terms: two factors for powers of two of 11 bits.
// CHECK-LABEL: func.func @double
// CHECK-NOT: math.exp
// CHECK: math.fma %{{.+}}, %{{.+}}, %{{.+}} : vector<8xf64>
// CHECK: arith.shli %{{.+}}, %{{.+}} : vector<8xi64>
// CHECK: arith.shli %{{.+}}, %{{.+}} : vector<8xi64>
// CHECK: return
func.func @double(%x: vector<8xf64>) -> vector<8xf64> {
  %e = math.exp %x : vector<8xf64>
  return %e : vector<8xf64>
}

// Of f64 libm reduces angles, and computes powers.
// CHECK-LABEL: func.func @double_stays_for_libm
// CHECK-NEXT: math.sin %arg0 : f64
// CHECK-NEXT: math.powf %arg0, %arg0 : f64
// CHECK-NEXT: return
func.func @double_stays_for_libm(%x: f64) -> (f64, f64) {
  %s = math.sin %x : f64
  %p = math.powf %x, %x : f64
  return %s, %p : f64, f64
}

// CHECK-LABEL: func.func @double_integer_power
// CHECK: %[[N:.+]] = arith.sitofp %arg1 : i64 to f64
// CHECK: math.powf %arg0, %[[N]] : f64
func.func @double_integer_power(%x: f64, %n: i64) -> f64 {
  %r = math.fpowi %x, %n : f64, i64
  return %r : f64
}

// What has an instruction stays.
// CHECK-LABEL: func.func @instructions_stay
// CHECK-NEXT: math.sqrt
// CHECK-NEXT: math.floor
// CHECK-NEXT: math.roundeven
// CHECK-NEXT: math.absf
// CHECK-NEXT: math.copysign
// CHECK-NEXT: math.fma
// CHECK-NEXT: math.rsqrt
// CHECK-NEXT: math.cbrt
func.func @instructions_stay(%x: f32) -> f32 {
  %a = math.sqrt %x : f32
  %b = math.floor %a : f32
  %c = math.roundeven %b : f32
  %d = math.absf %c : f32
  %e = math.copysign %d, %x : f32
  %f = math.fma %e, %x, %x : f32
  %g = math.rsqrt %f : f32
  %h = math.cbrt %g : f32
  return %h : f32
}

// CHECK-LABEL: func.func @maxima
// CHECK: arith.maximumf %arg0, %arg0 fastmath<nsz> : f32
// CHECK: arith.minimumf %{{.+}}, %arg0 fastmath<reassoc,nsz> : f32
// CHECK: arith.maxnumf %{{.+}}, %arg0 : f32
func.func @maxima(%x: f32) -> f32 {
  %a = arith.maximumf %x, %x : f32
  %b = arith.minimumf %a, %x fastmath<reassoc> : f32
  %c = arith.maxnumf %b, %x : f32
  return %c : f32
}

// Whole tensors are no business of this pass.
// CHECK-LABEL: func.func @tensors(
// CHECK-NEXT: math.exp %{{.+}} : tensor<4xf32>
// CHECK-NEXT: math.log1p %{{.+}} : tensor<f64>
// CHECK-NEXT: math.tanh %{{.+}} : tensor<?xbf16>
// CHECK-NEXT: math.cosh %{{.+}} : tensor<2x0xf16>
func.func @tensors(%a: tensor<4xf32>, %b: tensor<f64>, %c: tensor<?xbf16>, %d: tensor<2x0xf16>) -> (tensor<4xf32>, tensor<f64>, tensor<?xbf16>, tensor<2x0xf16>) {
  %e = math.exp %a : tensor<4xf32>
  %f = math.log1p %b : tensor<f64>
  %g = math.tanh %c : tensor<?xbf16>
  %h = math.cosh %d : tensor<2x0xf16>
  return %e, %f, %g, %h : tensor<4xf32>, tensor<f64>, tensor<?xbf16>, tensor<2x0xf16>
}
