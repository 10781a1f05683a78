// One operation, several, or a module: each becomes one module unless told otherwise.
// RUN: tilewright-opt %s --split-input-file | filecheck %s
// RUN: tilewright-opt %s --split-input-file --no-implicit-module 2>&1 | filecheck %s --check-prefix=BARE

// CHECK: module
// CHECK-NEXT: func.func private @alone()
// BARE-NOT: module
// BARE: func.func private @alone()
func.func private @alone()

// -----

// CHECK: module @named
// CHECK-NEXT: func.func private @inside()
// BARE: module @named
module @named {
  func.func private @inside()
}
