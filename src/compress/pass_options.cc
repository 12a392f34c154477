#include "compress/pass_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "compress/matrix_parts.h"
#include "kernels/input_rounding.h"

namespace millrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// int8, or e4m3.
InputSegment input_number(const std::string& name) {
  InputSegment out{.columns = 1, .group = 1};
  if (name.size() == 4 && name.starts_with("int") && name[3] >= '2' && name[3] <= '8')
    out.mantissa_bits = name[3] - '1';
  else if (name.size() == 4 && name[0] == 'e' && is_digit(name[1]) && name[2] == 'm' && is_digit(name[3]) &&
           name[1] != '0') {
    out.exponent_bits = name[1] - '0';
    out.mantissa_bits = name[3] - '0';
  }
  return out;
}

}  // namespace

Result<const Format*> stored_format(const OptionValues& options) {
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!name.empty() && (!format || format->gguf_type < 0))
    return Error::user(fmt::format("format '{}': must be a format that GGUF files can have, such as q4_0", name));
  return format;
}

InputSegment InputFormat::segment(int64_t columns) const {
  InputSegment out = number;
  out.columns = static_cast<int32_t>(columns);
  out.group = static_cast<int32_t>(group > 0 ? std::min(group, columns) : columns);
  return out;
}

std::vector<InputSegment> InputFormat::rounding(int64_t columns) const {
  if (!rounds()) return {};
  return {segment(columns)};
}

Result<InputFormat> input_format(const OptionValues& options) {
  InputFormat out;
  out.group = options.integer("input_group");
  out.number.clip = static_cast<float>(options.number("clip"));
  const std::string& name = options.text("inputs");
  if (name == "none") return out;
  InputSegment number = input_number(name);
  number.clip = out.number.clip;
  if (!valid_segment(number))
    return Error::user(
        fmt::format("inputs '{}': must be none, int2 to int8, or a float of at most 5 exponent and 3 mantissa bits, "
                    "such as e4m3; and clip above 0 and at most 1, is {}",
                    name, number.clip));
  out.number = number;
  return out;
}

std::string keeps_its_inputs(const PassMatrix& matrix) {
  if (!matrix.no_parts.empty()) return std::string(matrix.no_parts);
  if (matrix.id.layer < 0) return "the head's inputs stay as they are";
  if (!matrix.parts.input.empty()) return "its inputs are changed already";
  if (!matrix.kept.empty()) return "it is pruned";
  return "";
}

void store_rows(PassMatrix& matrix, ThreadPool& pool) {
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<float> scratch;
    store_row(matrix.parts.input, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
  });
}

}  // namespace millrace
