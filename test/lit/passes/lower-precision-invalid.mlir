// RUN: tilewright-opt %s --lower-precision --verify-diagnostics

// expected-error @below {{`lower-precision`: `tilewright.precision` is "f8"; it can be "bf16" or "tf32"}}
module attributes {tilewright.precision = "f8"} {
}
