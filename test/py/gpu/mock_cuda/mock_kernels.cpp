// What stands for machine code in the mock driver: a text that names bodies, run on host memory.
#include <cmath>
#include <thread>

#include "mock_state.h"

namespace mock {

namespace {

constexpr uint64_t kMapMagic = 0x70616d726f736e74;

float *floats(const Params &params, size_t number) { return reinterpret_cast<float *>(params.pointers.at(number)); }

// The pointer parameters must lead to live memory when the kernel runs, not only when it is launched.
bool check_pointers(const FunctionState &function, const Params &params) {
  const uint64_t bytes = uint64_t(function.code.number("bytes", 4 * function.code.number("n", 1)));
  for (size_t i = 0; i < params.pointers.size(); ++i) {
    const bool is_small = int64_t(i) >= function.code.number("full", int64_t(params.pointers.size()));
    if (!is_live(params.pointers[i], is_small ? 4 : bytes)) {
      problem(function.code.symbol + ": parameter " + std::to_string(i) + " leads to no live memory of " +
              std::to_string(is_small ? 4 : bytes) + " B");
      return false;
    }
  }
  return true;
}

void copy_through_map(const FunctionState &function, const Params &params) {
  const uint64_t *map = params.maps.at(0).opaque;
  if (map[0] != kMapMagic) return problem(function.code.symbol + ": its tensor map was never encoded");
  if (map[1] != params.pointers.at(size_t(function.code.number("over"))))
    return problem(function.code.symbol + ": its tensor map lies over another address than its buffer");
  const uint64_t rows = (map[2] >> 8 & 255) > 1 ? map[4] : 1, row_bytes = map[3] * 4;
  for (uint64_t row = 0; row < rows; ++row)
    std::memcpy(reinterpret_cast<char *>(params.pointers.at(1)) + row * row_bytes,
                reinterpret_cast<const char *>(map[1]) + row * map[8], row_bytes);
}

// Counts its launches in a workspace that it must find and leave zero.
void count_in_workspace(const FunctionState &function, const Params &params) {
  auto *zeroed = reinterpret_cast<unsigned char *>(params.pointers.at(2));
  for (int64_t i = 0; i < function.code.number("zeroed"); ++i)
    if (zeroed[i]) return problem(function.code.symbol + ": its workspace is not zero");
  const int64_t n = function.code.number("n");
  zeroed[0] = 1;
  for (int64_t i = 0; i < n; ++i) floats(params, 1)[i] = floats(params, 0)[i] + float(zeroed[0]);
  zeroed[0] = 0;
}

void check_values(const FunctionState &function, const Params &params) {
  const int64_t n = function.code.number("n");
  auto *status = reinterpret_cast<int32_t *>(params.pointers.at(2));
  for (int64_t i = 0; i < n; ++i) {
    floats(params, 1)[i] = floats(params, 0)[i];
    if (floats(params, 0)[i] > float(function.code.number("limit"))) *status = int32_t(1 + function.code.number("check"));
  }
}

// A function of real PTX: its parameters and its block, with a body that does nothing.
bool parse_entry(const std::string &ptx, size_t at, ModuleState &module) {
  const size_t open = ptx.find('(', at), close = ptx.find(')', at);
  Code code;
  std::istringstream(ptx.substr(at + 7, open - at - 7)) >> code.symbol;
  code.body = "nothing";
  std::istringstream params(ptx.substr(open + 1, close - open - 1));
  for (std::string one; std::getline(params, one, ',');) {
    if (one.find(".param") == std::string::npos) continue;
    const bool is_map = one.find("[128]") != std::string::npos && one.find(".b8") != std::string::npos;
    if (!is_map && one.find(".u64") == std::string::npos) return false;
    code.sig += is_map ? 'm' : 'p';
  }
  const size_t threads = ptx.find(".reqntid", close), body = ptx.find('{', close);
  if (threads < body) code.numbers["threads"] = std::stoll(ptx.substr(threads + 8));
  module.functions.push_back(code);
  return true;
}

}  // namespace

void execute(const FunctionState &function, const Params &params, StreamState &stream) {
  const Code &code = function.code;
  stream.clock_us += double(code.number("us", 1));
  note("ran ", code.symbol);
  if (!state().functions.count(const_cast<FunctionState *>(&function)))
    return problem("a kernel runs whose module was unloaded");
  if (state().sticky || !check_pointers(function, params)) return;
  const int64_t n = code.number("n");
  if (code.body == "nothing") {
    for (const TensorMap &map : params.maps)
      if (map.opaque[0] != kMapMagic) problem(code.symbol + ": a tensor map was never encoded");
  } else if (code.body == "copy") {
    std::memmove(floats(params, 1), floats(params, 0), size_t(code.number("bytes", 4 * n)));
  } else if (code.body == "add") {
    for (int64_t i = 0; i < n; ++i) floats(params, 2)[i] = floats(params, 0)[i] + floats(params, 1)[i];
  } else if (code.body == "scale") {
    for (int64_t i = 0; i < n; ++i) floats(params, 1)[i] = floats(params, 0)[i] * float(code.number("by"));
  } else if (code.body == "map") {
    copy_through_map(function, params);
  } else if (code.body == "count") {
    count_in_workspace(function, params);
  } else if (code.body == "check") {
    check_values(function, params);
  } else if (code.body == "beyond") {
    // Right, and one element more than its own.
    for (int64_t i = 0; i <= n; ++i) floats(params, 1)[i] = i < n ? 2 * floats(params, 0)[i] : 1;
  } else if (code.body == "fault") {
    state().sticky = kIllegalAddress;
  } else if (code.body == "hang") {
    std::this_thread::sleep_for(std::chrono::hours(1));
  } else if (code.body == "die") {
    std::abort();
  } else {
    problem("no body `" + code.body + "`");
  }
}

int parse_image(const char *image, ModuleState &module, char *log, uint64_t log_bytes) {
  const std::string text = image;
  const size_t entry = text.find(".entry");
  if (entry != std::string::npos) return parse_entry(text, entry, module) ? 0 : kInvalidPtx;
  std::istringstream lines(image);
  std::string line, word;
  std::getline(lines, line);
  std::istringstream head(line);
  head >> word;
  const bool is_ptx = word == ".version";
  if (word != "MOCK" && !is_ptx) return tw::cuda::kInvalidImage;
  std::string arch;
  head >> arch;
  const auto &attributes = state().devices[0].attributes;
  const std::string own = "sm_" + std::to_string(attributes.at(75)) + std::to_string(attributes.at(76));
  if (!is_ptx && arch.substr(0, own.size()) != own) return tw::cuda::kNoBinaryForGpu;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    words >> word;
    if (word == "error") {
      std::snprintf(log, log_bytes, "%s", "ptxas fatal: line 7: unknown instruction");
      return kInvalidPtx;
    }
    if (word != "fn") continue;
    Code code;
    words >> code.symbol >> code.body >> code.sig;
    while (words >> word) {
      const size_t equals = word.find('=');
      code.numbers[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
    }
    module.functions.push_back(code);
  }
  return 0;
}

Params read_params(const FunctionState &function, void **params) {
  Params found;
  size_t number = 0;
  for (char kind : function.code.sig) {
    void *value = params[number++];
    if (kind == 'm') {
      found.maps.emplace_back();
      std::memcpy(&found.maps.back(), value, sizeof(TensorMap));
    } else {
      found.pointers.push_back(*static_cast<Address *>(value));
    }
  }
  return found;
}

}  // namespace mock

using namespace mock;

MOCK_API cuTensorMapEncodeTiled(TensorMap *to, int type, uint32_t rank, void *address, const uint64_t *shape,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                                int interleave, int swizzle, int promotion, int fill) {
  if (int code = enter("cuTensorMapEncodeTiled", false)) return code;
  std::lock_guard guard(state().lock);
  auto refuse = [](const char *what) {
    problem(std::string("tensor map: ") + what);
    return int(tw::cuda::kInvalidValue);
  };
  constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
  constexpr uint32_t kSwizzleBytes[] = {0, 32, 64, 128};
  if (Address(to) % 64) return refuse("it is not aligned to 64 B");
  if (type < 0 || type > 11) return refuse("type");
  if (rank < 1 || rank > 5) return refuse("rank");
  if (Address(address) % 16) return refuse("address not aligned to 16 B");
  uint64_t span = shape[0] * kBytes[type], inner = kBytes[type];
  for (uint32_t d = 0; d < rank; ++d) {
    if (shape[d] < 1 || shape[d] > 1ull << 32) return refuse("shape");
    if (box[d] < 1 || box[d] > 256) return refuse("box");
    if (element_strides[d] < 1 || element_strides[d] > 8 || element_strides[0] != 1) return refuse("element strides");
    if (!d) continue;
    const uint64_t stride = strides[d - 1];
    if (stride % 16 || stride >= 1ull << 40) return refuse("strides");
    // Strides are multiples of the one before, and hold all of its dimension.
    if (stride % inner || stride / inner < shape[d - 1]) return refuse("strides that are not nested");
    span += (shape[d] - 1) * stride;
    inner = stride;
  }
  if (box[0] * kBytes[type] % 16) return refuse("rows of the box are no multiple of 16 B");
  if (swizzle < 0 || swizzle > 3 || (swizzle && box[0] * kBytes[type] > kSwizzleBytes[swizzle]))
    return refuse("swizzle");
  if (interleave || fill || promotion < 0 || promotion > 3) return refuse("options");
  if (!is_live(Address(address), span)) return refuse("it reaches beyond live memory");
  uint64_t *words = to->opaque;
  std::memset(words, 0, sizeof *to);
  words[0] = kMapMagic;
  words[1] = Address(address);
  words[2] = uint64_t(type) | uint64_t(rank) << 8 | uint64_t(swizzle) << 16;
  for (uint32_t d = 0; d < rank; ++d) words[3 + d] = shape[d];
  for (uint32_t d = 1; d < rank; ++d) words[7 + d] = strides[d - 1];
  std::string steps;
  for (uint32_t d = 0; d < rank; ++d) steps += (d ? "," : "") + std::to_string(element_strides[d]);
  note("tensor map of rank ", rank, " type ", type, " swizzle ", swizzle, " box ", box[0], " every ", steps);
  return 0;
}
