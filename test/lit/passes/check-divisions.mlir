// RUN: tilewright-opt %s --pass-pipeline='builtin.module(check-divisions)' --split-input-file | filecheck %s

// A quotient by zero is asserted away; one by -1 is the negated dividend, which cannot overflow.
// CHECK-LABEL: func.func @quotient
// CHECK: %[[ZERO:.+]] = arith.constant 0 : i32
// CHECK: %[[OK:.+]] = arith.cmpi ne, %[[D:.+]], %[[ZERO]] : i32
// CHECK: cf.assert %[[OK]], "integer division by zero"
// CHECK: %[[NEXT:.+]] = arith.addi %[[D]], %{{.+}} : i32
// CHECK: %[[SPECIAL:.+]] = arith.cmpi ule, %[[NEXT]], %{{.+}} : i32
// CHECK: %[[SAFE:.+]] = arith.select %[[SPECIAL]], %{{.+}}, %[[D]] : i32
// CHECK: %[[Q:.+]] = arith.divsi %[[X:.+]], %[[SAFE]] : i32
// CHECK: %[[MINUS:.+]] = arith.cmpi eq, %[[D]], %{{.+}} : i32
// CHECK: %[[NEGATED:.+]] = arith.subi %{{.+}}, %[[X]] : i32
// CHECK: %[[R:.+]] = arith.select %[[MINUS]], %[[NEGATED]], %[[Q]] : i32
// CHECK: linalg.yield %[[R]]
func.func @quotient(%x: tensor<4xi32>, %y: tensor<4xi32>, %out: tensor<4xi32>) -> tensor<4xi32> {
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                       iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xi32>, tensor<4xi32>) outs(%out : tensor<4xi32>) {
  ^bb0(%a: i32, %b: i32, %old: i32):
    %q = arith.divsi %a, %b : i32
    linalg.yield %q : i32
  } -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// -----

// What is left over 1 is 0, as over -1.
// CHECK-LABEL: func.func @rest
// CHECK: cf.assert
// CHECK: %[[SAFE:.+]] = arith.select
// CHECK: %[[REST:.+]] = arith.remsi %arg0, %[[SAFE]] : i64
// CHECK-NEXT: return %[[REST]]
func.func @rest(%a: i64, %b: i64) -> i64 {
  %q = arith.remsi %a, %b : i64
  return %q : i64
}

// -----

// Unsigned numbers have no -1.
// CHECK-LABEL: func.func @unsigned
// CHECK: cf.assert
// CHECK: %[[SAFE:.+]] = arith.maxui %arg1, %{{.+}} : i8
// CHECK: %[[Q:.+]] = arith.divui %arg0, %[[SAFE]] : i8
// CHECK: %[[R:.+]] = arith.remui %[[Q]], %{{.+}} : i8
// CHECK: return %[[R]]
func.func @unsigned(%a: i8, %b: i8) -> i8 {
  %q = arith.divui %a, %b : i8
  %r = arith.remui %q, %b : i8
  return %r : i8
}

// -----

// Known divisors need no check, nor do those of loop counters.
// CHECK-LABEL: func.func @known
// CHECK-NOT: cf.assert
// CHECK: return
func.func @known(%a: i32, %n: index, %m: index) -> (i32, index) {
  %c7 = arith.constant 7 : i32
  %q = arith.divsi %a, %c7 : i32
  %r = arith.remsi %n, %m : index
  return %q, %r : i32, index
}

// -----

// A known zero fails at every call.
// CHECK-LABEL: func.func @known_zero
// CHECK: cf.assert %{{.+}}, "integer division by zero"
func.func @known_zero(%a: i32) -> i32 {
  %c0 = arith.constant 0 : i32
  %q = arith.divsi %a, %c0 : i32
  return %q : i32
}
