// RUN: tilewright-opt %s --pass-pipeline='builtin.module(narrow-integers,canonicalize,cse)' | filecheck %s
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(narrow-integers{enabled=false})' | filecheck %s --check-prefix=OFF

// OFF-NOT: xori

#x = affine_map<(n, h, w, o, r, s, i) -> (n, h + r, w + s, i)>
#k = affine_map<(n, h, w, o, r, s, i) -> (r, s, i, o)>
#y = affine_map<(n, h, w, o, r, s, i) -> (n, h, w, o)>
#four = affine_map<(a, b, c, d) -> (a, b, c, d)>
#one = affine_map<(a, b, c, d) -> ()>
#two = affine_map<(a, b) -> (a, b)>
#none = affine_map<(a, b) -> ()>
#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>

// The border is the zero point; the sums of the filters are taken off, seven of them.
// CHECK-LABEL: func.func @convolution
// CHECK: %[[Z:.+]] = arith.constant 7 : i8
// CHECK: %[[P:.+]] = tensor.pad %arg0
// CHECK: tensor.yield %[[Z]] : i8
// CHECK: %[[D:.+]] = linalg.generic {{.*}} ins(%[[P]], %arg1 : tensor<1x6x6x4xi8>, tensor<3x3x4x16xi8>) outs({{.*}} : tensor<1x4x4x16xi32>)
// CHECK: arith.extui
// CHECK: arith.extsi
// CHECK: arith.muli
// CHECK: %[[S:.+]] = linalg.generic {{.*}}"reduction", "reduction", "reduction", "parallel"]{{.*}} outs({{.*}} : tensor<16xi32>)
// CHECK: linalg.generic {{.*}} ins(%[[D]], %[[S]] : tensor<1x4x4x16xi32>, tensor<16xi32>)
// CHECK: arith.muli %{{.+}}, %c7_i32
// CHECK: arith.subi
// CHECK: arith.extsi {{.*}} : i32 to i64
func.func @convolution(%a: tensor<1x4x4x4xi8> {tilewright.role = "input"}, %w: tensor<3x3x4x16xi8> {tilewright.role = "weight"}) -> tensor<1x4x4x16xi64> {
  %zero = arith.constant 0 : i32
  %z64 = arith.constant 0 : i64
  %seven = arith.constant dense<7> : tensor<i32>
  %e = tensor.empty() : tensor<1x4x4x4xi32>
  %e1 = tensor.empty() : tensor<3x3x4x16xi32>
  %e2 = tensor.empty() : tensor<1x4x4x16xi64>
  %f = linalg.fill ins(%z64 : i64) outs(%e2 : tensor<1x4x4x16xi64>) -> tensor<1x4x4x16xi64>
  %a1 = linalg.generic {indexing_maps = [#four, #four], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%a : tensor<1x4x4x4xi8>) outs(%e : tensor<1x4x4x4xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extui %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<1x4x4x4xi32>
  %a2 = linalg.generic {indexing_maps = [#four, #one, #four], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%a1, %seven : tensor<1x4x4x4xi32>, tensor<i32>) outs(%e : tensor<1x4x4x4xi32>) {
  ^bb0(%i: i32, %j: i32, %o: i32):
    %v = arith.subi %i, %j : i32
    linalg.yield %v : i32
  } -> tensor<1x4x4x4xi32>
  %w1 = linalg.generic {indexing_maps = [#four, #four], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%w : tensor<3x3x4x16xi8>) outs(%e1 : tensor<3x3x4x16xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extsi %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<3x3x4x16xi32>
  %p = tensor.pad %a2 low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%b0: index, %b1: index, %b2: index, %b3: index):
    tensor.yield %zero : i32
  } : tensor<1x4x4x4xi32> to tensor<1x6x6x4xi32>
  %c = linalg.generic {indexing_maps = [#x, #k, #y], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%p, %w1 : tensor<1x6x6x4xi32>, tensor<3x3x4x16xi32>) outs(%f : tensor<1x4x4x16xi64>) {
  ^bb0(%i: i32, %j: i32, %o: i64):
    %i1 = arith.extsi %i : i32 to i64
    %j1 = arith.extsi %j : i32 to i64
    %m = arith.muli %i1, %j1 : i64
    %s = arith.addi %o, %m : i64
    linalg.yield %s : i64
  } -> tensor<1x4x4x16xi64>
  return %c : tensor<1x4x4x16xi64>
}

// Signed activations are moved by 128, and so is their zero point.
// CHECK-LABEL: func.func @signed_rows
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<5x8xi8>) outs({{.*}} : tensor<5x8xi8>)
// CHECK: arith.xori %{{.+}}, %c-128_i8
// CHECK: linalg.generic {{.*}} ins(%[[A]], %arg1 : tensor<5x8xi8>, tensor<8x16xi8>)
// CHECK: arith.muli %{{.+}}, %c128_i32
func.func @signed_rows(%a: tensor<5x8xi8> {tilewright.role = "input"}, %w: tensor<8x16xi8> {tilewright.role = "weight"}) -> tensor<5x16xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<5x8xi32>
  %e1 = tensor.empty() : tensor<8x16xi32>
  %e2 = tensor.empty() : tensor<5x16xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e2 : tensor<5x16xi32>) -> tensor<5x16xi32>
  %a1 = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<5x8xi8>) outs(%e : tensor<5x8xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extsi %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<5x8xi32>
  %w1 = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x16xi8>) outs(%e1 : tensor<8x16xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extsi %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<8x16xi32>
  %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a1, %w1 : tensor<5x8xi32>, tensor<8x16xi32>) outs(%f : tensor<5x16xi32>) {
  ^bb0(%i: i32, %j: i32, %o: i32):
    %m = arith.muli %i, %j : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<5x16xi32>
  return %c : tensor<5x16xi32>
}

// Unsigned weights around 119 are signed ones around -9: minus nine times the sum of each row is taken off.
// CHECK-LABEL: func.func @weights_around_another_zero
// CHECK: %[[W:.+]] = linalg.generic {{.*}} ins(%arg1 : tensor<8x16xi8>) outs({{.*}} : tensor<8x16xi8>)
// CHECK: %[[D:.+]] = linalg.generic {{.*}} ins(%arg0, %[[W]] : tensor<5x8xi8>, tensor<8x16xi8>)
// CHECK: %[[S:.+]] = linalg.generic {{.*}}["parallel", "reduction"]} ins(%arg0 : tensor<5x8xi8>) outs({{.*}} : tensor<5xi32>)
// CHECK: arith.extui
// CHECK: linalg.generic {{.*}} ins(%[[D]], %[[S]] : tensor<5x16xi32>, tensor<5xi32>)
// CHECK: arith.muli %{{.+}}, %c-9_i32
func.func @weights_around_another_zero(%a: tensor<5x8xi8> {tilewright.role = "input"}, %w: tensor<8x16xi8> {tilewright.role = "weight"}) -> tensor<5x16xi32> {
  %zero = arith.constant 0 : i32
  %middle = arith.constant dense<119> : tensor<i32>
  %e = tensor.empty() : tensor<5x8xi32>
  %e1 = tensor.empty() : tensor<8x16xi32>
  %e2 = tensor.empty() : tensor<5x16xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e2 : tensor<5x16xi32>) -> tensor<5x16xi32>
  %a1 = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<5x8xi8>) outs(%e : tensor<5x8xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extui %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<5x8xi32>
  %w1 = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x16xi8>) outs(%e1 : tensor<8x16xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extui %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<8x16xi32>
  %w2 = linalg.generic {indexing_maps = [#two, #none, #two], iterator_types = ["parallel", "parallel"]} ins(%w1, %middle : tensor<8x16xi32>, tensor<i32>) outs(%e1 : tensor<8x16xi32>) {
  ^bb0(%i: i32, %j: i32, %o: i32):
    %v = arith.subi %i, %j : i32
    linalg.yield %v : i32
  } -> tensor<8x16xi32>
  %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a1, %w2 : tensor<5x8xi32>, tensor<8x16xi32>) outs(%f : tensor<5x16xi32>) {
  ^bb0(%i: i32, %j: i32, %o: i32):
    %m = arith.muli %i, %j : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<5x16xi32>
  return %c : tensor<5x16xi32>
}

// No block divides 521 columns: there are 55 of zeros more, whose sums nobody reads.
// CHECK-LABEL: func.func @columns_that_no_block_divides
// CHECK: %[[W:.+]] = tensor.pad %arg1 low[0, 0] high[0, 55]
// CHECK: %[[D:.+]] = linalg.generic {{.*}} ins(%arg0, %[[W]] : tensor<5x8xi8>, tensor<8x576xi8>)
// CHECK: tensor.extract_slice %[[D]][0, 0] [5, 521] [1, 1]
func.func @columns_that_no_block_divides(%a: tensor<5x8xi8> {tilewright.role = "input"}, %w: tensor<8x521xi8> {tilewright.role = "weight"}) -> tensor<5x521xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<5x8xi32>
  %e1 = tensor.empty() : tensor<8x521xi32>
  %e2 = tensor.empty() : tensor<5x521xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e2 : tensor<5x521xi32>) -> tensor<5x521xi32>
  %a1 = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<5x8xi8>) outs(%e : tensor<5x8xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extui %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<5x8xi32>
  %w1 = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x521xi8>) outs(%e1 : tensor<8x521xi32>) {
  ^bb0(%i: i8, %o: i32):
    %v = arith.extsi %i : i8 to i32
    linalg.yield %v : i32
  } -> tensor<8x521xi32>
  %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a1, %w1 : tensor<5x8xi32>, tensor<8x521xi32>) outs(%f : tensor<5x521xi32>) {
  ^bb0(%i: i32, %j: i32, %o: i32):
    %m = arith.muli %i, %j : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<5x521xi32>
  return %c : tensor<5x521xi32>
}

// 32-bit numbers that were never bytes.
// CHECK-LABEL: func.func @dont_narrow_words
// CHECK-NOT: i8
func.func @dont_narrow_words(%a: tensor<5x8xi32> {tilewright.role = "input"}, %w: tensor<8x16xi32> {tilewright.role = "weight"}) -> tensor<5x16xi32> {
  %zero = arith.constant 0 : i32
  %e2 = tensor.empty() : tensor<5x16xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e2 : tensor<5x16xi32>) -> tensor<5x16xi32>
  %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<5x8xi32>, tensor<8x16xi32>) outs(%f : tensor<5x16xi32>) {
  ^bb0(%i: i32, %j: i32, %o: i32):
    %m = arith.muli %i, %j : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<5x16xi32>
  return %c : tensor<5x16xi32>
}
