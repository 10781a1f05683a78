// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(mark-alignment)' | filecheck %s

// A slice that starts 72 bytes into its tensor: @square may assume 8. @square is also called with an aligned
// tensor, which does not make the other call any better aligned.
// CHECK-LABEL: func.func @main(
// CHECK: func.func private @square(%{{.+}}: tensor<2x3xf32> {tilewright.alignment = 8 : i64}) -> tensor<2x3xf32>
// CHECK-LABEL: func.func private @sum(
// CHECK-NOT: tilewright.alignment
func.func @main(%x: tensor<8x3xf32> {tilewright.name = "x", tilewright.role = "input"}, %z: tensor<2x3xf32> {tilewright.name = "z", tilewright.role = "input"}) -> tensor<2x3xf32> {
  %b = tensor.extract_slice %x[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %y = call @square(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %w = call @square(%z) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %a = tensor.extract_slice %x[4, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %r = call @sum(%y, %w, %a) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}
func.func private @square(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  return %x : tensor<2x3xf32>
}
func.func private @sum(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %z: tensor<2x3xf32>) -> tensor<2x3xf32> {
  return %x : tensor<2x3xf32>
}

// -----

// A result computed in place, after a border of 1 of its 34 elements: strides stay, the alignment joins them.
// CHECK-LABEL: func.func @main(
// CHECK: func.func private @square(%{{.+}}: tensor<4x32xf16>) -> (tensor<4x32xf16> {tilewright.alignment = 2 : i64, tilewright.strides = array<i64: 34, 1>})
func.func @main(%x: tensor<4x32xf16> {tilewright.name = "x", tilewright.role = "input"}, %p: tensor<4x34xf16> {tilewright.index = 0 : i64, tilewright.name = "packed0", tilewright.role = "packed"}) -> tensor<4x34xf16> {
  %s = call @square(%x) : (tensor<4x32xf16>) -> tensor<4x32xf16>
  %r = tensor.insert_slice %s into %p[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf16> into tensor<4x34xf16>
  return %r : tensor<4x34xf16>
}
func.func private @square(%x: tensor<4x32xf16>) -> (tensor<4x32xf16> {tilewright.strides = array<i64: 34, 1>}) {
  return %x : tensor<4x32xf16>
}
