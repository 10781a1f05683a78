#include "tables.h"

#include <algorithm>
#include <string>

namespace tw {

namespace {
const char *const kSpaceNames[TW_SPACE_COUNT] = {"input", "output", "weight", "constant", "packed", "arena"};
}

void check_program(const tw_program &table, const char *name, bool is_prepack, int64_t kernel_count,
                   const BufferSizes &sizes) {
  std::vector<bool> used(table.buffer_count, false);
  for (int64_t i = 0; i < table.step_count; ++i) {
    const tw_step &s = table.steps[i];
    auto refuse = [&](const std::string &what) {
      throw TableError(std::string(name) + " step " + std::to_string(i) + ": " + what);
    };
    if (s.kernel < 0 || s.kernel >= kernel_count)
      refuse("kernel " + std::to_string(s.kernel) + " of " + std::to_string(kernel_count));
    if (s.tasks < 0) refuse(std::to_string(s.tasks) + " rTasks");
    if (s.first_buffer < 0 || s.buffer_count < 0 || s.first_buffer > table.buffer_count - s.buffer_count)
      refuse("its buffers lie outside the buffer table");
    for (int64_t b = s.first_buffer; b < s.first_buffer + s.buffer_count; ++b) {
      const tw_buffer_ref &ref = table.buffers[b];
      if (ref.space < 0 || ref.space >= TW_SPACE_COUNT) refuse("buffer space " + std::to_string(ref.space));
      std::string space = kSpaceNames[ref.space];
      if (is_prepack && (ref.space == TW_INPUT || ref.space == TW_OUTPUT))
        refuse("prepack has no space `" + space + "`");
      const std::vector<int64_t> &known = sizes.of[ref.space];
      if (ref.index < 0 || size_t(ref.index) >= known.size())
        refuse(space + " " + std::to_string(ref.index) + " of " + std::to_string(known.size()));
      if (ref.offset < 0 || ref.offset > known[ref.index])
        refuse("offset " + std::to_string(ref.offset) + " in " + space + " " + std::to_string(ref.index) + " of " +
               std::to_string(known[ref.index]) + " B");
    }
    std::fill_n(used.begin() + s.first_buffer, s.buffer_count, true);
  }
  for (int64_t b = 0; b < table.buffer_count; ++b)
    if (!used[b]) throw TableError(std::string(name) + ": buffer " + std::to_string(b) + " belongs to no step");
}

void check_updates(const std::vector<tw_update> &updates, const BufferSizes &sizes) {
  const std::vector<int64_t> &outputs = sizes.of[TW_OUTPUT], &inputs = sizes.of[TW_INPUT];
  std::vector<bool> is_updated(outputs.size(), false), is_taken(inputs.size(), false);
  for (const tw_update &u : updates) {
    const std::string which = "update of output " + std::to_string(u.output) + " from input " + std::to_string(u.input);
    if (u.output < 0 || size_t(u.output) >= outputs.size() || u.input < 0 || size_t(u.input) >= inputs.size())
      throw TableError(which + ": there are " + std::to_string(outputs.size()) + " and " + std::to_string(inputs.size()));
    if (outputs[u.output] != inputs[u.input])
      throw TableError(which + ": they have " + std::to_string(outputs[u.output]) + " and " +
                       std::to_string(inputs[u.input]) + " B");
    if (is_updated[u.output] || is_taken[u.input]) throw TableError(which + ": one of them has another one");
    is_updated[u.output] = is_taken[u.input] = true;
  }
}

}  // namespace tw
