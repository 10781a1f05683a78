// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(tile-dots{bf16=true int8=true}),canonicalize,cse)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(tile-dots))' | filecheck %s --check-prefix=OFF

// OFF-NOT: x86_amx

#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>
#quads = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2 floordiv 4, d1 mod 16, d2 mod 4)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Two by two tiles, a chunk of 32 of the depth at a time; 80 leave a chunk of 16, whose tiles are half as deep.
// CHECK-LABEL: func.func @two_by_two
// CHECK-NOT: linalg
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilezero.internal"(%c16_i16, %c64_i16) : (i16, i16) -> !llvm.x86_amx
// CHECK: scf.for {{.*}} -> (!llvm.x86_amx, !llvm.x86_amx, !llvm.x86_amx, !llvm.x86_amx)
// CHECK: %[[A0:.+]] = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"(%c16_i16, %c64_i16, %{{.+}}, %c160_i64)
// CHECK: %[[B0:.+]] = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"(%c16_i16, %c64_i16, %{{.+}}, %c128_i64)
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"(%c16_i16, %c64_i16, %c64_i16, %{{.+}}, %[[A0]], %[[B0]])
// CHECK: %[[B1:.+]] = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"({{.*}}, %[[A0]], %[[B1]])
// CHECK: %[[A1:.+]] = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"({{.*}}, %[[A1]], %[[B0]])
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"({{.*}}, %[[A1]], %[[B1]])
// CHECK: scf.yield
// CHECK: llvm.call_intrinsic "llvm.x86.tileloadd64.internal"(%c16_i16, %c32_i16, %{{.+}}, %c160_i64)
// CHECK: llvm.call_intrinsic "llvm.x86.tileloadd64.internal"(%c8_i16, %c64_i16, %{{.+}}, %c128_i64)
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"(%c16_i16, %c64_i16, %c32_i16,
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilestored64.internal"(%c16_i16, %c64_i16, %{{.+}}, %c128_i64,
func.func @two_by_two(%a: memref<32x80xbf16>, %w: memref<1x40x32x2xbf16>, %c: memref<32x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<32x32xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x80xbf16>, memref<1x40x32x2xbf16>) outs(%c : memref<32x32xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Without a fill the sums so far are loaded. Five rows are a tile of five.
// CHECK-LABEL: func.func @bytes
// CHECK: llvm.call_intrinsic "llvm.x86.tileloadd64.internal"(%c5_i16, %c64_i16, %{{.+}}, %c64_i64)
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbusd.internal"(%c5_i16, %c64_i16, %c8_i16,
func.func @bytes(%a: memref<5x8xi8>, %w: memref<1x2x16x4xi8>, %c: memref<5x16xi32>) {
  linalg.generic {indexing_maps = [#left, #quads, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<5x8xi8>, memref<1x2x16x4xi8>) outs(%c : memref<5x16xi32>) {
  ^bb0(%x: i8, %y: i8, %o: i32):
    %x1 = arith.extui %x : i8 to i32
    %y1 = arith.extsi %y : i8 to i32
    %p = arith.muli %x1, %y1 : i32
    %s = arith.addi %o, %p : i32
    linalg.yield %s : i32
  }
  return
}

// A row of an odd depth ends in half a word.
// CHECK-LABEL: func.func @dont_take_odd_depths
// CHECK: linalg.generic
func.func @dont_take_odd_depths(%a: memref<32x9xbf16>, %w: memref<1x5x32x2xbf16>, %c: memref<32x32xf32>) {
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x9xbf16>, memref<1x5x32x2xbf16>) outs(%c : memref<32x32xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// CHECK-LABEL: func.func @dont_take_unpacked_columns
// CHECK: linalg.generic
func.func @dont_take_unpacked_columns(%a: memref<32x8xbf16>, %w: memref<8x32xbf16>, %c: memref<32x32xf32>) {
  linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x8xbf16>, memref<8x32xbf16>) outs(%c : memref<32x32xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
