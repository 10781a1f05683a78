// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(linalg-generalize-named-ops),choose-packing{target=x86-64-v3})' | filecheck %s --check-prefixes=CHECK,V3
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(linalg-generalize-named-ops),choose-packing{target=x86-64-v4})' | filecheck %s --check-prefixes=CHECK,V4
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(linalg-generalize-named-ops),choose-packing{target=sapphire-rapids})' | filecheck %s --check-prefixes=CHECK,TWO
// RUN: tilewright-opt %s --pass-pipeline='builtin.module(func.func(linalg-generalize-named-ops),choose-packing{target=x86-64-v3 least-passes=86 spread-passes=129})' | filecheck %s --check-prefix=NEVER

// NEVER-NOT: copy = true

// Register tiles of 6 x 16 meet a row four times as often as those of 6 x 64; 1 MiB is more than the 512 KiB that a core
// has to itself, and no more than 1 MiB. Cores that multiply by two lines in a cycle (TWO, of 2 MiB each) wait for rows: fewer
// passes are enough, whatever sets they share, of more than half of what a core has.
// CHECK-LABEL: func.func @half_pages
// V3: attrs = {tilewright.choice = {block = 16 : i64, copy = true}}
// V4: attrs = {tilewright.choice = {copy = false}}
// TWO: attrs = {tilewright.choice = {copy = false}}
func.func @half_pages(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>, %i: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<512x512xf32>, tensor<512x512xf32>) outs(%i : tensor<512x512xf32>) -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}

// Rows that share few sets of the caches are copied earlier.
// CHECK-LABEL: func.func @pages
// V3: attrs = {tilewright.choice = {block = 16 : i64, copy = true}}
// V4: attrs = {tilewright.choice = {copy = false}}
// TWO: attrs = {tilewright.choice = {block = 64 : i64, copy = true}}
func.func @pages(%a: tensor<192x1024xf32>, %b: tensor<1024x1024xf32>, %i: tensor<192x1024xf32>) -> tensor<192x1024xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<192x1024xf32>, tensor<1024x1024xf32>) outs(%i : tensor<192x1024xf32>) -> tensor<192x1024xf32>
  return %r : tensor<192x1024xf32>
}

// CHECK-LABEL: func.func @spread
// V3: attrs = {tilewright.choice = {copy = false}}
// V4: attrs = {tilewright.choice = {copy = false}}
// TWO: attrs = {tilewright.choice = {block = {{[0-9]+}} : i64, copy = true}}
func.func @spread(%a: tensor<192x768xf32>, %b: tensor<768x768xf32>, %i: tensor<192x768xf32>) -> tensor<192x768xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<192x768xf32>, tensor<768x768xf32>) outs(%i : tensor<192x768xf32>) -> tensor<192x768xf32>
  return %r : tensor<192x768xf32>
}

// CHECK-LABEL: func.func @spread_among_many_rows
// V3: attrs = {tilewright.choice = {block = {{[0-9]+}} : i64, copy = true}}
// V4: attrs = {tilewright.choice = {copy = false}}
// TWO: attrs = {tilewright.choice = {block = {{[0-9]+}} : i64, copy = true}}
func.func @spread_among_many_rows(%a: tensor<768x768xf32>, %b: tensor<768x768xf32>, %i: tensor<768x768xf32>) -> tensor<768x768xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<768x768xf32>, tensor<768x768xf32>) outs(%i : tensor<768x768xf32>) -> tensor<768x768xf32>
  return %r : tensor<768x768xf32>
}

// Of many products each passes its own part of an operand: 64 KiB stay where they are.
// CHECK-LABEL: func.func @many_products
// CHECK: attrs = {tilewright.choice = {copy = false}}
func.func @many_products(%a: tensor<64x512x32xf32>, %b: tensor<64x32x512xf32>, %i: tensor<64x512x512xf32>) -> tensor<64x512x512xf32> {
  %r = linalg.batch_matmul ins(%a, %b : tensor<64x512x32xf32>, tensor<64x32x512xf32>) outs(%i : tensor<64x512x512xf32>) -> tensor<64x512x512xf32>
  return %r : tensor<64x512x512xf32>
}
