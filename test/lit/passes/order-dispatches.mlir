// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(order-dispatches{capacities=[1000000,6000] gbps=[1.0,8.0]})' | filecheck %s
// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(order-dispatches{capacities=[1000000,60000] gbps=[1.0,8.0]})' | filecheck %s --check-prefix=ROOM
// RUN: tilewright-opt %s --split-input-file --pass-pipeline='builtin.module(order-dispatches)' | filecheck %s --check-prefix=ROOM

// Two layers of 4 kB over two steps: a cache of 6 kB holds the weight of one. All steps of a layer follow one another.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[^ ]+]]: tensor<2x32xf32>
// CHECK: %[[X0:.+]] = tensor.extract_slice %[[X]][0, 0]
// CHECK: %[[A0:.+]] = call @cell(%{{.+}}, %[[W0:[^ ]+]])
// CHECK: %[[X1:.+]] = tensor.extract_slice %[[X]][1, 0]
// CHECK: %[[A1:.+]] = call @joined(%{{.+}}, %[[A0]], %[[W0]])
// CHECK: %[[B0:.+]] = call @cell(%[[A0]], %[[W1:[^ ]+]])
// CHECK: %[[B1:.+]] = call @joined(%[[A1]], %[[B0]], %[[W1]])
// CHECK: return %[[B1]]

// A cache that holds both, or no cache at all: the given order is as good.
// ROOM-LABEL: func.func @main(
// ROOM: %[[A0:.+]] = call @cell(%{{.+}}, %[[W0:[^ ]+]])
// ROOM: %[[B0:.+]] = call @cell(%[[A0]], %[[W1:[^ ]+]])
// ROOM: %[[A1:.+]] = call @joined(%{{.+}}, %[[A0]], %[[W0]])
// ROOM: %[[B1:.+]] = call @joined(%[[A1]], %[[B0]], %[[W1]])
// ROOM: return %[[B1]]
func.func @main(
    %x: tensor<2x32xf32> {tilewright.name = "x", tilewright.role = "input"},
    %w0: tensor<32x32xf32> {tilewright.name = "w0", tilewright.role = "weight"},
    %w1: tensor<32x32xf32> {tilewright.name = "w1", tilewright.role = "weight"}) -> tensor<32xf32> {
  %s0 = tensor.extract_slice %x[0, 0] [1, 32] [1, 1] : tensor<2x32xf32> to tensor<1x32xf32>
  %x0 = tensor.collapse_shape %s0 [[0, 1]] : tensor<1x32xf32> into tensor<32xf32>
  %a0 = call @cell(%x0, %w0) : (tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
  %b0 = call @cell(%a0, %w1) : (tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
  %s1 = tensor.extract_slice %x[1, 0] [1, 32] [1, 1] : tensor<2x32xf32> to tensor<1x32xf32>
  %x1 = tensor.collapse_shape %s1 [[0, 1]] : tensor<1x32xf32> into tensor<32xf32>
  %a1 = call @joined(%x1, %a0, %w0) : (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
  %b1 = call @joined(%a1, %b0, %w1) : (tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
  return %b1 : tensor<32xf32>
}
func.func private @cell(tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>
func.func private @joined(tensor<32xf32>, tensor<32xf32>, tensor<32x32xf32>) -> tensor<32xf32>

// -----

// Both padded tensors lie in one border: the second may be written only once the first was read, however far its
// weight is by then.
// CHECK-LABEL: func.func @main(
// CHECK: %[[P:.+]] = call @widen(%{{.+}}, %[[W0:[^ ,]+]])
// CHECK: %[[PP:.+]] = tensor.insert_slice %[[P]] into %[[BORDER:[^\[]+]]
// CHECK: %[[S:.+]] = call @sum(%[[PP]], %[[W1:[^ )]+]])
// CHECK: %[[Q:.+]] = call @widen(%{{.+}}, %[[W0]])
// CHECK: %[[QQ:.+]] = tensor.insert_slice %[[Q]] into %[[BORDER]]
// CHECK: %[[T:.+]] = call @sum(%[[QQ]], %[[W1]])
// CHECK: return %[[S]], %[[T]]
// ROOM-LABEL: func.func @main(
func.func @main(
    %x: tensor<4x32xf32> {tilewright.name = "x", tilewright.role = "input"},
    %y: tensor<4x32xf32> {tilewright.name = "y", tilewright.role = "input"},
    %w0: tensor<32x32xf32> {tilewright.name = "w0", tilewright.role = "weight"},
    %w1: tensor<34x32xf32> {tilewright.name = "w1", tilewright.role = "weight"},
    %border: tensor<4x34xf32> {tilewright.name = "packed0", tilewright.role = "packed"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %p = call @widen(%x, %w0) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pp = tensor.insert_slice %p into %border[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf32> into tensor<4x34xf32>
  %s = call @sum(%pp, %w1) : (tensor<4x34xf32>, tensor<34x32xf32>) -> tensor<4xf32>
  %q = call @widen(%y, %w0) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %qq = tensor.insert_slice %q into %border[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf32> into tensor<4x34xf32>
  %t = call @sum(%qq, %w1) : (tensor<4x34xf32>, tensor<34x32xf32>) -> tensor<4xf32>
  return %s, %t : tensor<4xf32>, tensor<4xf32>
}
func.func private @widen(tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
func.func private @sum(tensor<4x34xf32>, tensor<34x32xf32>) -> tensor<4xf32>

// -----

// The same in borders of their own: both products with the first weight go first.
// CHECK-LABEL: func.func @main(
// CHECK: %[[P:.+]] = call @widen(%{{.+}}, %[[W0:[^ ,]+]])
// CHECK: %[[Q:.+]] = call @widen(%{{.+}}, %[[W0]])
// CHECK: call @sum
// CHECK: call @sum
// ROOM-LABEL: func.func @main(
func.func @main(
    %x: tensor<4x32xf32> {tilewright.name = "x", tilewright.role = "input"},
    %y: tensor<4x32xf32> {tilewright.name = "y", tilewright.role = "input"},
    %w0: tensor<32x32xf32> {tilewright.name = "w0", tilewright.role = "weight"},
    %w1: tensor<34x32xf32> {tilewright.name = "w1", tilewright.role = "weight"},
    %b0: tensor<4x34xf32> {tilewright.name = "packed0", tilewright.role = "packed"},
    %b1: tensor<4x34xf32> {tilewright.name = "packed1", tilewright.role = "packed"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %p = call @widen(%x, %w0) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %pp = tensor.insert_slice %p into %b0[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf32> into tensor<4x34xf32>
  %s = call @sum(%pp, %w1) : (tensor<4x34xf32>, tensor<34x32xf32>) -> tensor<4xf32>
  %q = call @widen(%y, %w0) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %qq = tensor.insert_slice %q into %b1[0, 1] [4, 32] [1, 1] {tilewright.in_place} : tensor<4x32xf32> into tensor<4x34xf32>
  %t = call @sum(%qq, %w1) : (tensor<4x34xf32>, tensor<34x32xf32>) -> tensor<4xf32>
  return %s, %t : tensor<4xf32>, tensor<4xf32>
}
func.func private @widen(tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
func.func private @sum(tensor<4x34xf32>, tensor<34x32xf32>) -> tensor<4xf32>

// -----

// Checks that can fail keep their order, so that of several failures the same one is reported.
// CHECK-LABEL: func.func @main(
// CHECK: call @look(%{{.+}}, %[[W0:[^ )]+]])
// CHECK: call @look(%{{.+}}, %[[W1:[^ )]+]])
// CHECK: call @look(%{{.+}}, %[[W0]])
// CHECK: call @look(%{{.+}}, %[[W1]])
// ROOM-LABEL: func.func @main(
func.func @main(
    %i: tensor<1xindex> {tilewright.name = "i", tilewright.role = "input"},
    %j: tensor<1xindex> {tilewright.name = "j", tilewright.role = "input"},
    %w0: tensor<1024xf32> {tilewright.name = "w0", tilewright.role = "weight"},
    %w1: tensor<1024xf32> {tilewright.name = "w1", tilewright.role = "weight"}) -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) {
  %a = call @look(%i, %w0) : (tensor<1xindex>, tensor<1024xf32>) -> tensor<1xf32>
  %b = call @look(%i, %w1) : (tensor<1xindex>, tensor<1024xf32>) -> tensor<1xf32>
  %c = call @look(%j, %w0) : (tensor<1xindex>, tensor<1024xf32>) -> tensor<1xf32>
  %d = call @look(%j, %w1) : (tensor<1xindex>, tensor<1024xf32>) -> tensor<1xf32>
  return %a, %b, %c, %d : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
}
func.func private @look(%i: tensor<1xindex>, %w: tensor<1024xf32>) -> tensor<1xf32> {
  %zero = arith.constant 0 : index
  %size = arith.constant 1024 : index
  %at = tensor.extract %i[%zero] : tensor<1xindex>
  %ok = arith.cmpi ult, %at, %size : index
  cf.assert %ok, "index out of range"
  %v = tensor.extract %w[%at] : tensor<1024xf32>
  %r = tensor.from_elements %v : tensor<1xf32>
  return %r : tensor<1xf32>
}
