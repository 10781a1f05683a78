// The verifier of tilewright's attributes runs on what is read, and after every pass.
// RUN: tilewright-opt %s --split-input-file --verify-diagnostics
// RUN: tilewright-opt %s --split-input-file --verify-each=false -o /dev/null

// expected-error @below {{dispatch @schedule: tile is a list of integers >= 0, found [-1]}}
func.func private @schedule(%x: tensor<8xf32>) attributes {tilewright.schedule = {tile = [-1]}} { return }

// -----

// expected-error @below {{unknown attribute `tilewright.schedul`; did you mean `tilewright.schedule`?}}
func.func private @slip(%x: tensor<8xf32>) attributes {tilewright.schedul = {tile = [1]}} { return }

// -----

// expected-error @below {{`tilewright.operator`: expected a string, found 3 : i64}}
func.func private @operator(%x: tensor<8xf32>) attributes {tilewright.operator = 3} { return }

// -----

// expected-error @below {{`tilewright.unfused`: expected an array of strings, found ["a", 1]}}
func.func private @unfused(%x: tensor<8xf32>) attributes {tilewright.unfused = ["a", 1]} { return }

// -----

// expected-error @below {{`tilewright.tasks`: expected an integer of at least 0, found -2 : i64}}
func.func private @tasks(%x: tensor<8xf32>) attributes {tilewright.tasks = -2} { return }

// -----

// expected-error @below {{argument 1: `tilewright.role`: expected one of weight, input, packed, found "wait"}}
func.func @role(%x: tensor<8xf32> {tilewright.role = "input"}, %w: tensor<8xf32> {tilewright.role = "wait"}) { return }

// -----

// Names that are nobody's slip are somebody's own.
func.func @own(%x: tensor<8xf32> {tilewright.colour = "red"}) attributes {tilewright.owner = 1} { return }
