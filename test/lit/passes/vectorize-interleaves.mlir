// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(vectorize-interleaves),canonicalize,cse)' | filecheck %s

#id = affine_map<(a, q, c, e) -> (a, q, c, e)>
#rows = affine_map<(a, q, c, e) -> (q, e, a, c)>
#columns = affine_map<(a, q, c, e) -> (a, c, q, e)>
#scattered = affine_map<(a, q, c, e) -> (q, e, c, a)>

// Columns 0..32 together, 32..48 in one of 16.
// CHECK-LABEL: func.func @pairs_of_rows
// CHECK: %[[FLAT:.+]] = memref.collapse_shape %arg1 {{\[\[}}0], [1], [2, 3]]
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[R0:.+]] = vector.load %arg0[{{.*}}] : memref<4x2x3x48xbf16>, vector<32xbf16>
// CHECK: %[[R1:.+]] = vector.load %arg0[{{.*}}] : memref<4x2x3x48xbf16>, vector<32xbf16>
// CHECK: %[[I0:.+]] = vector.bitcast %[[R0]] : vector<32xbf16> to vector<32xi16>
// CHECK: %[[I1:.+]] = vector.bitcast %[[R1]]
// CHECK: %[[I:.+]] = vector.interleave %[[I0]], %[[I1]]
// CHECK: %[[P:.+]] = vector.bitcast %[[I]] : vector<64xi16> to vector<64xbf16>
// CHECK: vector.store %[[P]], %[[FLAT]][{{.*}}] : memref<3x4x96xbf16>, vector<64xbf16>
// CHECK: vector.interleave {{.*}} : vector<16xi16> -> vector<32xi16>
func.func @pairs_of_rows(%x: memref<4x2x3x48xbf16>, %y: memref<3x4x48x2xbf16>) {
  linalg.generic {indexing_maps = [#rows, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<4x2x3x48xbf16>) outs(%y : memref<3x4x48x2xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    linalg.yield %i : bf16
  }
  return
}

// What is computed on the way is computed on whole rows; four of them are interleaved in two rounds.
// CHECK-LABEL: func.func @quads_of_rows
// CHECK-COUNT-4: arith.xori {{.*}} : vector<16xi8>
// CHECK: vector.interleave %[[A:.+]], %{{.+}} : vector<16xi8> -> vector<32xi8>
// CHECK: vector.interleave %{{.+}}, %{{.+}} : vector<16xi8> -> vector<32xi8>
// CHECK: vector.interleave %{{.+}}, %{{.+}} : vector<32xi8> -> vector<64xi8>
// CHECK: vector.store {{.*}} vector<64xi8>
func.func @quads_of_rows(%x: memref<2x4x1x16xi8>, %y: memref<1x2x16x4xi8>) {
  %c = arith.constant 5 : i8
  linalg.generic {indexing_maps = [#rows, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<2x4x1x16xi8>) outs(%y : memref<1x2x16x4xi8>) {
  ^bb0(%i: i8, %o: i8):
    %z = arith.xori %i, %c : i8
    linalg.yield %z : i8
  }
  return
}

// Blocks of 16 columns by 4 words, which are moved as such.
// CHECK-LABEL: func.func @words
// CHECK: %[[FROM:.+]] = memref.collapse_shape %arg0
// CHECK-COUNT-16: vector.load %[[FROM]][{{.*}}] : memref<1x16x8xbf16>, vector<8xbf16>
// CHECK: vector.shuffle
// CHECK-COUNT-4: vector.store {{.*}} : memref<1x4x32xbf16>, vector<32xbf16>
func.func @words(%x: memref<1x16x4x2xbf16>, %y: memref<1x4x16x2xbf16>) {
  linalg.generic {indexing_maps = [#columns, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<1x16x4x2xbf16>) outs(%y : memref<1x4x16x2xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    linalg.yield %i : bf16
  }
  return
}

// CHECK-LABEL: func.func @dont_gather
// CHECK: linalg.generic
func.func @dont_gather(%x: memref<4x2x48x3xbf16>, %y: memref<3x4x48x2xbf16>) {
  linalg.generic {indexing_maps = [#scattered, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<4x2x48x3xbf16>) outs(%y : memref<3x4x48x2xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    linalg.yield %i : bf16
  }
  return
}

// CHECK-LABEL: func.func @dont_take_words
// CHECK: linalg.generic
func.func @dont_take_words(%x: memref<4x2x3x48xf32>, %y: memref<3x4x48x2xf32>) {
  linalg.generic {indexing_maps = [#rows, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : memref<4x2x3x48xf32>) outs(%y : memref<3x4x48x2xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  }
  return
}
