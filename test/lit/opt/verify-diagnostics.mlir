// RUN: tilewright-opt %s --split-input-file --verify-diagnostics

func.func @same_line(%x: i32) -> i64 {
  return %x : i32  // expected-error {{type of return operand 0 ('i32') doesn't match}}
}

// -----

func.func @next_line(%x: i32) -> i64 {
  // expected-error @+1 {{type of return operand 0}}
  return %x : i32
}

// -----

func.func @below(%x: i32) -> i64 {
  // expected-error-re @below {{type of return operand {{[0-9]}} ('i{{32|64}}') doesn't}}
  return %x : i32
}

// -----

func.func @above(%x: i32) -> i64 {
  return %x : i32
  // expected-error @above {{doesn't match function result type ('i64')}}
}

// -----

// expected-note @+1 {{prior use here}}
func.func @notes_count_too(%x: i32) -> i64 {
  // expected-error @+1 {{expects different type than prior uses: 'i64' vs 'i32'}}
  return %x : i64
}
