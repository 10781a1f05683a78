// Passes of MLIR, of torch-mlir and of tilewright in one pipeline.
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline,simplify-bodies,func.func(canonicalize))' | filecheck %s

// CHECK-LABEL: func.func @relu(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32>
// CHECK: linalg.generic
// CHECK: arith.cmpf ugt
// CHECK: arith.select
func.func @relu(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %y = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %y : !torch.vtensor<[2,3],f32>
}
