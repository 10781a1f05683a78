// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-dots{bf16=true int8=true}),canonicalize,cse)' | filecheck %s


#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#across = affine_map<(d0, d1, d2) -> (d1, d2)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>
#quads = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2 floordiv 4, d1 mod 16, d2 mod 4)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Two rows by two registers; the ninth element of a row makes a pair with a zero.
// CHECK-LABEL: func.func @packed
// CHECK-NOT: linalg
// CHECK: %[[W:.+]] = memref.collapse_shape %arg1 {{.*}} into memref<2x5x64xbf16>
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK: %[[B0:.+]] = vector.load %[[W]][{{.*}}] : memref<2x5x64xbf16>, vector<32xbf16>
// CHECK: %[[A:.+]] = vector.load %arg0[{{.*}}] : memref<4x9xbf16>, vector<2xbf16>
// CHECK: %[[BITS:.+]] = vector.bitcast %[[A]] : vector<2xbf16> to vector<1xi32>
// CHECK: %[[WORD:.+]] = vector.extract %[[BITS]][0]
// CHECK: %[[SPREAD:.+]] = vector.broadcast %[[WORD]] : i32 to vector<16xi32>
// CHECK: %[[ROW:.+]] = vector.bitcast %[[SPREAD]] : vector<16xi32> to vector<32xbf16>
// CHECK: x86.avx512.dot %{{.+}}, %[[ROW]], %[[B0]] : vector<32xbf16> -> vector<16xf32>
// CHECK-COUNT-3: x86.avx512.dot
// CHECK: scf.yield
// CHECK: memref.load %arg0
// CHECK: arith.extui {{.*}} : i16 to i32
// CHECK-COUNT-4: x86.avx512.dot
// CHECK-COUNT-4: vector.store
func.func @packed(%a: memref<4x9xbf16>, %w: memref<2x5x32x2xbf16>, %c: memref<4x64xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x64xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<4x9xbf16>, memref<2x5x32x2xbf16>) outs(%c : memref<4x64xf32>) attrs = {tilewright.loops = {dots = [2, 32]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// A step of a block takes 128 bytes, two lines, each asked for two steps ahead.
// CHECK-LABEL: func.func @fetched_ahead
// CHECK: %[[W:.+]] = memref.collapse_shape %arg1 {{.*}} into memref<2x8x64xbf16>
// CHECK: scf.for %[[Q:[a-z0-9]+]] = {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
// CHECK: memref.prefetch %[[W]][%{{.+}}, %{{.+}}, %{{.+}}], read, locality<2>, data
// CHECK: memref.prefetch %[[W]][%{{.+}}, %{{.+}}, %{{.+}}], read, locality<2>, data
// CHECK-NOT: memref.prefetch
// CHECK: x86.avx512.dot
func.func @fetched_ahead(%a: memref<4x16xbf16>, %w: memref<2x8x32x2xbf16>, %c: memref<4x64xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<4x64xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<4x16xbf16>, memref<2x8x32x2xbf16>) outs(%c : memref<4x64xf32>)
      attrs = {tilewright.loops = {dots = [2, 32]}, tilewright.prefetch = 256 : i64} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Rows that are not packed are interleaved; three columns make a register of four.
// CHECK-LABEL: func.func @row_major
// CHECK: vector.load %arg2[{{.*}}] : memref<2x19xf32>, vector<16xf32>
// CHECK: %[[R0:.+]] = vector.load %arg1[{{.*}}] : memref<8x19xbf16>, vector<16xbf16>
// CHECK: %[[R1:.+]] = vector.load %arg1[{{.*}}] : memref<8x19xbf16>, vector<16xbf16>
// CHECK: %[[I0:.+]] = vector.bitcast %[[R0]] : vector<16xbf16> to vector<16xi16>
// CHECK: %[[I1:.+]] = vector.bitcast %[[R1]]
// CHECK: %[[I:.+]] = vector.interleave %[[I0]], %[[I1]] : vector<16xi16> -> vector<32xi16>
// CHECK: %[[B:.+]] = vector.bitcast %[[I]] : vector<32xi16> to vector<32xbf16>
// CHECK: x86.avx512.dot %{{.+}}, %{{.+}}, %[[B]] : vector<32xbf16> -> vector<16xf32>
// CHECK: vector.load %arg1[{{.*}}] : memref<8x19xbf16>, vector<2xbf16>
// CHECK: vector.insert_strided_slice
// CHECK: x86.avx512.dot {{.*}} : vector<8xbf16> -> vector<4xf32>
// CHECK: vector.store {{.*}} : memref<2x19xf32>, vector<2xf32>
func.func @row_major(%a: memref<2x8xbf16>, %b: memref<8x19xbf16>, %c: memref<2x19xf32>) {
  linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<2x8xbf16>, memref<8x19xbf16>) outs(%c : memref<2x19xf32>) attrs = {tilewright.loops = {dots = [2, 19]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// CHECK-LABEL: func.func @bytes
// CHECK: llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"(%{{.+}}, %{{.+}}, %{{.+}}) : (vector<16xi32>, vector<64xi8>, vector<64xi8>) -> vector<16xi32>
func.func @bytes(%a: memref<2x8xi8>, %w: memref<1x2x16x4xi8>, %c: memref<2x16xi32>) {
  linalg.generic {indexing_maps = [#left, #quads, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<2x8xi8>, memref<1x2x16x4xi8>) outs(%c : memref<2x16xi32>) attrs = {tilewright.loops = {dots = [2, 16]}} {
  ^bb0(%x: i8, %y: i8, %o: i32):
    %x1 = arith.extui %x : i8 to i32
    %y1 = arith.extsi %y : i8 to i32
    %p = arith.muli %x1, %y1 : i32
    %s = arith.addi %o, %p : i32
    linalg.yield %s : i32
  }
  return
}

// VNNI multiplies unsigned rows by signed columns only.
// CHECK-LABEL: func.func @dont_take_signed_rows
// CHECK: linalg.generic
func.func @dont_take_signed_rows(%a: memref<2x8xi8>, %w: memref<1x2x16x4xi8>, %c: memref<2x16xi32>) {
  linalg.generic {indexing_maps = [#left, #quads, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<2x8xi8>, memref<1x2x16x4xi8>) outs(%c : memref<2x16xi32>) attrs = {tilewright.loops = {along = [2, 8, 1]}} {
  ^bb0(%x: i8, %y: i8, %o: i32):
    %x1 = arith.extsi %x : i8 to i32
    %y1 = arith.extsi %y : i8 to i32
    %p = arith.muli %x1, %y1 : i32
    %s = arith.addi %o, %p : i32
    linalg.yield %s : i32
  }
  return
}

// Columns along which pairs lie are the vectoriser's, which widens them.
// CHECK-LABEL: func.func @dont_take_transposed_columns
// CHECK: linalg.generic
func.func @dont_take_transposed_columns(%a: memref<2x8xbf16>, %b: memref<16x8xbf16>, %c: memref<2x16xf32>) {
  linalg.generic {indexing_maps = [#left, #across, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : memref<2x8xbf16>, memref<16x8xbf16>) outs(%c : memref<2x16xf32>) attrs = {tilewright.loops = {along = [2, 8, 1]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Three blocks of 64 steps, 32 pairs each: sums of all but the first are what is in memory.
// CHECK-LABEL: func.func @blocks
// CHECK: scf.for %[[K:.+]] = %c0 to %c96 step %c32 {
// CHECK-NEXT: %[[FIRST:.+]] = arith.cmpi eq, %[[K]], %c0
// CHECK: %[[STARTS:.+]]:4 = scf.if %[[FIRST]]
// CHECK-NEXT: scf.yield %cst, %cst, %cst, %cst
// CHECK-NEXT: } else {
// CHECK-COUNT-4: vector.load %arg2
// CHECK: scf.for %[[Q:.+]] = %c0 to %c32 step %c1 iter_args({{.*}} = %[[STARTS]]#0
// CHECK-NEXT: arith.addi %[[K]], %[[Q]]
// CHECK-COUNT-4: x86.avx512.dot
// CHECK: }
// CHECK-COUNT-4: vector.store
func.func @blocks(%a: memref<32x192xbf16>, %w: memref<1x96x32x2xbf16>, %c: memref<32x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<32x32xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x192xbf16>, memref<1x96x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {depth = 64, dots = [2, 32]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
