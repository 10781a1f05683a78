// RUN: not tilewright-opt %s --split-input-file > %t.out 2> %t.err
// RUN: filecheck %s --input-file %t.out --check-prefix=OUT
// RUN: filecheck %s --input-file %t.err --check-prefix=ERR

// A part that fails does not keep the others from being processed, but the tool fails.

// ERR: split-input-file-invalid.mlir:11:3: error: type of return operand 0 ('i32') doesn't match function result type ('i64')
// ERR-NEXT: return %x : i32
// ERR-NEXT: {{^}}  ^
func.func @broken(%x: i32) -> i64 {
  return %x : i32
}

// -----

// OUT: func.func @sound
func.func @sound() { return }
