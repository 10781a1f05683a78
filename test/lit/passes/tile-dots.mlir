// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(tile-dots{bf16=true int8=true}),canonicalize,cse)' | filecheck %s


#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d2, d1)>
#pairs = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2 floordiv 2, d1 mod 32, d2 mod 2)>
#blocks_of_48 = affine_map<(d0, d1, d2) -> (d1 floordiv 48, d2 floordiv 2, d1 mod 48, d2 mod 2)>
#quads = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2 floordiv 4, d1 mod 16, d2 mod 4)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Two by two tiles in registers 0 to 3. 80 of the depth are 40 groups: two chunks of 16, and 8 with registers of their
// own, 6 and 7, which leaves one for rows and one for columns. The second row of tiles meets the columns in reverse.
// CHECK-LABEL: func.func @two_by_two
// CHECK-NOT: linalg
// 0x400040 are 64 bytes per row of two registers, 0x400020 a row of 32 and one of 64; 0x10101010 sixteen rows of four
// registers, 0x08101010 eight of the last.
// CHECK: dense<[1, 0, 0, 0, 4194368, 4194368, 4194368, 4194336, 0, 0, 0, 0, 269488144, 135270416, 0, 0]> : vector<16xi32>
// CHECK: llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK: "llvm.x86.tilezero"(%c0_i8) : (i8) -> ()
// CHECK: "llvm.x86.tilezero"(%c1_i8) : (i8) -> ()
// CHECK: "llvm.x86.tilezero"(%c2_i8) : (i8) -> ()
// CHECK: "llvm.x86.tilezero"(%c3_i8) : (i8) -> ()
// CHECK: scf.for {{.*}} = %c0 to %c32 step %c16 {
// CHECK: "llvm.x86.tileloadd64"(%c4_i8, %{{.+}}, %c160_i64)
// CHECK: "llvm.x86.tileloadd64"(%c5_i8, %{{.+}}, %c128_i64)
// CHECK: "llvm.x86.tdpbf16ps"(%c0_i8, %c4_i8, %c5_i8)
// CHECK-NOT: tileloadd64"(%c4_i8
// CHECK: "llvm.x86.tileloadd64"(%c5_i8, %{{.+}}, %c128_i64)
// CHECK: "llvm.x86.tdpbf16ps"(%c1_i8, %c4_i8, %c5_i8)
// CHECK: "llvm.x86.tileloadd64"(%c4_i8, %{{.+}}, %c160_i64)
// CHECK-NEXT: "llvm.x86.tdpbf16ps"(%c3_i8, %c4_i8, %c5_i8)
// CHECK: "llvm.x86.tileloadd64"(%c5_i8, %{{.+}}, %c128_i64)
// CHECK: "llvm.x86.tdpbf16ps"(%c2_i8, %c4_i8, %c5_i8)
// CHECK: }
// CHECK: "llvm.x86.tdpbf16ps"(%c0_i8, %c6_i8, %c7_i8)
// CHECK: "llvm.x86.tdpbf16ps"(%c1_i8, %c6_i8, %c7_i8)
// CHECK: "llvm.x86.tdpbf16ps"(%c3_i8, %c6_i8, %c7_i8)
// CHECK: "llvm.x86.tdpbf16ps"(%c2_i8, %c6_i8, %c7_i8)
// CHECK: "llvm.x86.tilestored64"(%c0_i8, %{{.+}}, %c128_i64)
// CHECK: "llvm.x86.tilestored64"(%c1_i8, %{{.+}}, %c128_i64)
// CHECK: "llvm.x86.tilestored64"(%c2_i8, %{{.+}}, %c128_i64)
// CHECK: "llvm.x86.tilestored64"(%c3_i8, %{{.+}}, %c128_i64)
// CHECK-NEXT: llvm.call_intrinsic "llvm.x86.tilerelease"() : () -> ()
func.func @two_by_two(%a: memref<32x80xbf16>, %w: memref<1x40x32x2xbf16>, %c: memref<32x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<32x32xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x80xbf16>, memref<1x40x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {tiles = []}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// 40 groups are two even chunks of 20 words and no last one: two registers for rows, two for columns. 49 rows are a
// block of 32, then two tiles of 9 rows that have one in common, configured anew (0x09090909 rows of the sums).
// CHECK-LABEL: func.func @even_chunks
// CHECK-DAG: dense<[1, 0, 0, 0, 4194368, 4194368, 3145776, 4194368, 0, 0, 0, 0, 269488144, 202117136, 0, 0]> : vector<16xi32>
// CHECK-DAG: dense<[1, 0, 0, 0, 4194368, 4194368, 3145776, 4194368, 0, 0, 0, 0, 151587081, 202115337, 0, 0]> : vector<16xi32>
// CHECK: "llvm.x86.ldtilecfg"
// CHECK: scf.for {{.*}} step %c12 {
// CHECK: "llvm.x86.tdpbf16ps"(%c0_i8, %c4_i8, %c6_i8)
// CHECK: "llvm.x86.tdpbf16ps"(%c1_i8, %c4_i8, %c7_i8)
// CHECK: "llvm.x86.tdpbf16ps"(%c3_i8, %c5_i8, %c7_i8)
// CHECK-NEXT: "llvm.x86.tdpbf16ps"(%c2_i8, %c5_i8, %c6_i8)
// CHECK: "llvm.x86.ldtilecfg"
// CHECK: scf.for {{.*}} step %c12 {
// CHECK-NOT: ldtilecfg
// CHECK: "llvm.x86.tilerelease"
func.func @even_chunks(%a: memref<49x48xbf16>, %w: memref<1x24x32x2xbf16>, %c: memref<49x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<49x32xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<49x48xbf16>, memref<1x24x32x2xbf16>) outs(%c : memref<49x32xf32>) attrs = {tilewright.loops = {tiles = []}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Without a fill the sums so far are loaded. Five rows are a tile of five, two groups one chunk.
// CHECK-LABEL: func.func @bytes
// CHECK: dense<[1, 0, 0, 0, 524352, 64, 0, 0, 0, 0, 0, 0, 132357, 0, 0, 0]> : vector<16xi32>
// CHECK: "llvm.x86.tileloadd64"(%c0_i8, %{{.+}}, %c64_i64)
// CHECK: "llvm.x86.tdpbusd"(%c0_i8, %c1_i8, %c2_i8)
func.func @bytes(%a: memref<5x8xi8>, %w: memref<1x2x16x4xi8>, %c: memref<5x16xi32>) {
  linalg.generic {indexing_maps = [#left, #quads, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<5x8xi8>, memref<1x2x16x4xi8>) outs(%c : memref<5x16xi32>) attrs = {tilewright.loops = {tiles = []}} {
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
      ins(%a, %w : memref<32x9xbf16>, memref<1x5x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {dots = [2, 32]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Half of the last tile of columns would be another rTask's.
// CHECK-LABEL: func.func @dont_take_half_a_tile_of_columns
// CHECK: linalg.generic
func.func @dont_take_half_a_tile_of_columns(%a: memref<32x8xbf16>, %w: memref<1x4x48x2xbf16>, %c: memref<32x24xf32>) {
  %part = memref.subview %w[0, 0, 0, 0] [1, 4, 24, 2] [1, 1, 1, 1]
      : memref<1x4x48x2xbf16> to memref<1x4x24x2xbf16, strided<[384, 96, 2, 1]>>
  linalg.generic {indexing_maps = [#left, #blocks_of_48, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %part : memref<32x8xbf16>, memref<1x4x24x2xbf16, strided<[384, 96, 2, 1]>>) outs(%c : memref<32x24xf32>) attrs = {tilewright.loops = {dots = [2, 24]}} {
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
      ins(%a, %w : memref<32x8xbf16>, memref<8x32xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {dots = [2, 32]}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}

// Two blocks of 96 steps, 48 groups each: the first one starts from zeros, the second one from what the first has stored.
// CHECK-LABEL: func.func @blocks
// CHECK: memref.alloca
// CHECK: scf.for %[[K:.+]] = %c0 to %c96 step %c48 {
// CHECK-NEXT: %[[FIRST:.+]] = arith.cmpi eq, %[[K]], %c0
// CHECK: "llvm.x86.ldtilecfg"
// CHECK: scf.if %[[FIRST]] {
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK: } else {
// CHECK-COUNT-4: "llvm.x86.tileloadd64"
// CHECK: }
// CHECK: scf.for %[[CHUNK:.+]] = %c0 to %c48 step %c16 {
// CHECK-NEXT: arith.addi %[[K]], %[[CHUNK]]
// CHECK-COUNT-4: "llvm.x86.tdpbf16ps"
// CHECK: }
// CHECK-COUNT-4: "llvm.x86.tilestored64"
// CHECK: }
// CHECK: "llvm.x86.tilerelease"
func.func @blocks(%a: memref<32x192xbf16>, %w: memref<1x96x32x2xbf16>, %c: memref<32x32xf32>) {
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<32x32xf32>)
  linalg.generic {indexing_maps = [#left, #pairs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : memref<32x192xbf16>, memref<1x96x32x2xbf16>) outs(%c : memref<32x32xf32>) attrs = {tilewright.loops = {depth = 96, tiles = []}} {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %x1 = arith.extf %x : bf16 to f32
    %y1 = arith.extf %y : bf16 to f32
    %p = arith.mulf %x1, %y1 : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }
  return
}
