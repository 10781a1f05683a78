// RUN: tilewright-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(update-in-place)'

// expected-error @below {{`update-in-place`: argument 0: `tilewright.updated_by`: expected the number of a result of tensor<4xf32>, found 1}}
func.func @main(%x: tensor<4xf32> {tilewright.name = "x", tilewright.role = "input", tilewright.updated_by = 1}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{argument 0: `tilewright.updated_by`: expected an integer of at least 0, found "y"}}
func.func @main(%x: tensor<4xf32> {tilewright.name = "x", tilewright.role = "input", tilewright.updated_by = "y"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
