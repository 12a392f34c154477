#include "loader/tensor_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "loader/file_text.h"

namespace millrace {

Result<void> check_tensor_ranges(std::vector<TensorRange>& ranges, uint64_t begin, uint64_t file_bytes,
                                 const std::string& file) {
  for (const TensorRange& range : ranges) {
    if (range.offset < begin) {
      return Error::corrupt(fmt::format("{}: tensor {} at offset {}: begins before the data section (offset {})", file,
                                        quoted_name(range.name), range.offset, begin));
    }
    if (range.offset > file_bytes || range.bytes > file_bytes - range.offset) {
      return Error::corrupt(fmt::format(
          "{}: tensor {} at offset {}: its {} bytes extend past the end of the file ({} bytes); the file is "
          "truncated or damaged; download it again",
          file, quoted_name(range.name), range.offset, range.bytes, file_bytes));
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const TensorRange& a, const TensorRange& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  for (size_t i = 1; i < ranges.size(); ++i) {
    const TensorRange& before = ranges[i - 1];
    if (before.offset + before.bytes > ranges[i].offset) {
      return Error::corrupt(fmt::format("{}: tensor {} at offset {}: overlaps tensor {} at offset {}", file,
                                        quoted_name(ranges[i].name), ranges[i].offset, quoted_name(before.name),
                                        before.offset));
    }
  }
  return {};
}

}  // namespace millrace
