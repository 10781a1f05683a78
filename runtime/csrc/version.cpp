// Version of the C interface between runtime/*.py and this library.
extern "C" __attribute__((visibility("default"))) int tw_abi_version() { return 1; }
