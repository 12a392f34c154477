// KvFormats: how keys and values are stored, as `--kv-format` and `--use kv_format=` name it: a codec (kv/codec.h), or
// formats of rows, where keys and values may each have their own. Layers with a window may have others, rows or a
// codec:
//
//   f16    q8_0:values=f16    f16:window=q8_0    q8_0:values=f16,window=f16,window_values=q8_0
//   kivi:bits=2,window=f16    f16:window=kivi:bits=4/residual=32    progressive:below=0.1
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "kv/pool.h"

namespace millrace {

struct KvFormats {
  std::shared_ptr<const KvCodec> codec = nullptr;  // null: rows
  const Format* keys = nullptr;                    // null: no format of rows that attention reads
  const Format* values = nullptr;
  double residual_below = 0;  // KvLayout::residual_below
  // format of keys in layers with a window that have their own blocks; null: as above
  const Format* window_keys = nullptr;
  const Format* window_values = nullptr;
  // codec of these layers; window_keys is then the format of its raw rows
  std::shared_ptr<const KvCodec> window_codec = nullptr;

  // Some group has one.
  bool encodes() const { return codec || window_codec; }
  // With all layers in one group, in blocks that suit all of the formats. `drafted`: KvLayout::encode_with().
  KvLayout layout(int64_t block_tokens, std::vector<KvLayer> layers, int64_t drafted = 0) const;
  // Sets the formats of the groups that split_windows() made. Errors: unsupported (there are none to set).
  Result<void> set_window_formats(KvLayout& layout, int64_t drafted = 0) const;
  // The mean of keys and values, in layers that see all.
  double bits_per_value() const;
};

// `keys` is null where NAME is no format that `kernels` have attention for. Errors (user): an option.
Result<KvFormats> find_kv_formats(std::string_view text, const KernelTable& kernels);
// The options of a format of rows; those that a codec has, too.
const std::vector<OptionSpec>& kv_row_options();
std::vector<OptionSpec> kv_window_options();
// Returns the description of `progressive`, the format of rows with residuals.
const TechniqueInfo& progressive_kv_format();

}  // namespace millrace
