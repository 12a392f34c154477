// NpuOptions: options of the kernel switch `npu` (kernel_switches/npu.cc), and NpuScales: what its calibration
// measured.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/enum_table.h"
#include "base/result.h"
#include "models/linear_id.h"
#include "models/npu/schedule.h"

namespace millrace {

// Inputs that matrices of a layer share: Q, K and V; the output of attention; gate and up; down.
enum class NpuSite : uint8_t { attention_in, attention_out, mlp_in, mlp_out };

inline constexpr EnumNames<NpuSite> kNpuSiteNames("attn_in", "attn_out", "ffn_in", "ffn_out");

struct NpuInput {
  int32_t layer = 0;
  NpuSite site = NpuSite::attention_in;
  int32_t expert = LinearId::kNoExpert;  // or kShared

  auto operator<=>(const NpuInput&) const = default;
};

// Largest magnitude of each channel of each input, over the rows of a calibration.
struct NpuScales {
  std::map<NpuInput, std::vector<float>> maxima;
};

struct NpuOptions {
  int64_t chunk = 256;     // rows of a graph
  bool shadow = true;      // false: no outliers; the scale of every input covers its largest value
  double pruned = 0.85;    // fraction of the inputs, the least important ones, whose outliers are not computed
  double channels = 0.01;  // fraction of an input's channels that the calibration may find outliers in
  int threads = 0;         // threads of the device's own group; 0: the pass's threads run the device's graphs, too
  NpuOrder order = NpuOrder::out_of_order;  // with a group of its own
  std::string file;                         // calibration; empty: the model is calibrated with tokens that it samples
  NpuScales scales;                         // contents of `file`
};

// Sets the input of a matrix. Returns false if no graph computes matrices of this kind.
bool npu_input_of(const LinearId& id, NpuInput& input);

// Errors: user (cannot be read), corrupt (no scales).
Result<NpuScales> read_npu_scales(const std::string& path);
// Errors: user (cannot be written).
Result<void> write_npu_scales(const std::string& path, const NpuScales& scales, const std::string& model);

}  // namespace millrace
