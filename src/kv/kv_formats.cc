#include "kv/kv_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

constexpr std::string_view kProgressive = "progressive";
constexpr double kMaxBitsWithResidual = 9;  // maximum bits of a value in a row; the residual doubles them

Result<const Format*> find_rows(const KernelTable& kernels, const std::string& option, const std::string& name) {
  std::string known;
  for (const AttentionKernel& kernel : kernels.attention) {
    if (kernel.kv_format->name == name) return kernel.kv_format;
    known += (known.empty() ? "" : ", ") + std::string(kernel.kv_format->name);
  }
  return Error::user(fmt::format("{}: unknown format '{}'; available: {}", option, name, known));
}

// Keeps `format` where the option is not given, or empty.
Result<void> set_rows(const KernelTable& kernels, const OptionValues& given, const std::string& option,
                      const Format*& format) {
  if (given.text(option).empty()) return {};
  MILLRACE_TRY(format, find_rows(kernels, option, given.text(option)));
  return {};
}

// What the layers with a window have. Within `window` the options of a codec are separated by '/'.
Result<void> set_windows(const KernelTable& kernels, const OptionValues& given, KvFormats& formats) {
  std::string window = given.text("window");
  std::ranges::replace(window, '/', ',');
  auto codec = find_kv_codec(window);
  if (!codec.ok()) return Error{codec.error().kind, "window: " + codec.error().message};
  if (*codec) {
    if (window.find("window") != std::string::npos || !given.text("window_values").empty())
      return Error::user("window: a codec has no window formats of its own");
    formats.window_codec = std::move(*codec);
    formats.window_keys = formats.window_values = find_format("f16");
    return {};
  }
  MILLRACE_TRY_VOID(set_rows(kernels, given, "window", formats.window_keys));
  formats.window_values = formats.window_keys;
  if (!given.text("window_values").empty() && !formats.window_keys) {
    if (formats.codec) return Error::user("window_values: needs window, the format of keys, with a codec");
    formats.window_keys = formats.keys;
  }
  return set_rows(kernels, given, "window_values", formats.window_values);
}

// Rows with residuals.
Result<void> set_residuals(const KernelTable& kernels, const OptionValues& given, KvFormats& formats) {
  MILLRACE_TRY(formats.keys, find_rows(kernels, "format", given.text("format")));
  if (formats.keys->bits_per_value() > kMaxBitsWithResidual)
    return Error::user(fmt::format("format: {} has {} bits a value, at most {} are split into two parts",
                                   formats.keys->name, formats.keys->bits_per_value(), kMaxBitsWithResidual));
  formats.values = formats.keys;
  formats.residual_below = given.number("below");
  return {};
}

// The options of a format: of rows, with or without residuals, or of this codec.
const std::vector<OptionSpec>& format_options(std::string_view name) {
  if (name == kProgressive) return progressive_kv_format().options;
  const auto* codec = kv_codecs().find(name);
  return codec ? codec->info.options : kv_row_options();
}

}  // namespace

std::vector<OptionSpec> kv_window_options() {
  using Type = OptionSpec::Type;
  return {{"window", Type::text, "", 0, 0,
           "format of keys and values in layers with a window, where these have blocks of their own; default: as the "
           "others"},
          {"window_values", Type::text, "", 0, 0, "format of values in those layers; default: that of their keys"}};
}

const std::vector<OptionSpec>& kv_row_options() {
  static const std::vector<OptionSpec> options = [] {
    std::vector<OptionSpec> all = kv_window_options();
    all.insert(all.begin(), {"values", OptionSpec::Type::text, "", 0, 0, "format of values; default: that of keys"});
    return all;
  }();
  return options;
}

const TechniqueInfo& progressive_kv_format() {
  static const TechniqueInfo info = [] {
    using Type = OptionSpec::Type;
    TechniqueInfo out{.family = "kv_format",
                      .name = std::string(kProgressive),
                      .summary =
                          "KV cache in 4 bits, and apart from them what rounding left, in 4 bits more that only "
                          "queries with a flat softmax read",
                      .paper =
                          "Wang et al., 2021, SpAtten: Efficient Sparse Attention Architecture with Cascade Token "
                          "and Head Pruning",
                      .options = {{"below", Type::number, "0.1", 1e-6, 1,
                                   "a query reads both parts where its largest weight is below this"},
                                  {"format", Type::text, "q4_0", 0, 0,
                                   "format of each part, of at most 9 bits: q4_0, q4_1, q5_0, f8_e4m3 or q8_0"}},
                      .loss = Loss::lossy,
                      .test = "tests/properties/progressive_kv_test.cc",
                      .proof = "docs/kv-formats.md"};
    const auto windows = kv_window_options();
    out.options.insert(out.options.end(), windows.begin(), windows.end());
    return out;
  }();
  return info;
}

Result<KvFormats> find_kv_formats(std::string_view text, const KernelTable& kernels) {
  if (text == kProgressive) return find_kv_formats(fmt::format("{}:", text), kernels);
  KvFormats out;
  MILLRACE_TRY(out.codec, find_kv_codec(text));
  const auto colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const bool residuals = name == kProgressive;
  const Format* keys = find_format(out.codec || residuals ? "f16" : name);
  if (!keys || !kernels.find_attention(keys)) return out;
  out.keys = out.values = keys;
  if (colon == std::string_view::npos) return out;
  const std::string label = fmt::format("KV format {}", name);
  const auto given = parse_options(text.substr(colon + 1), format_options(name));
  if (!given.ok()) return Error::user(fmt::format("{}: {}", label, given.error().message));
  const auto set = [&]() -> Result<void> {
    if (residuals) {
      MILLRACE_TRY_VOID(set_residuals(kernels, *given, out));
    } else {
      MILLRACE_TRY_VOID(set_rows(kernels, *given, "values", out.values));
    }
    return set_windows(kernels, *given, out);
  };
  const auto done = set();
  if (!done.ok()) return Error::user(fmt::format("{}: {}", label, done.error().message));
  return out;
}

KvLayout KvFormats::layout(int64_t block_tokens, std::vector<KvLayer> layers, int64_t drafted) const {
  const int64_t multiple =
      std::lcm(codec ? codec->block_multiple() : 1, window_codec ? window_codec->block_multiple() : 1);
  KvLayout out{
      .format = keys, .block_tokens = (block_tokens + multiple - 1) / multiple * multiple, .layers = std::move(layers)};
  if (values != keys) out.value_format = values;
  out.residual_below = residual_below;
  if (codec) out.encode_with(codec, drafted);
  return out;
}

Result<void> KvFormats::set_window_formats(KvLayout& layout, int64_t drafted) const {
  if (!window_keys) return {};
  const auto set = [&](KvLayout& group) {
    group.codec = nullptr;
    group.tail_tokens = 0;
    group.residual_below = 0;
    group.format = window_keys;
    group.value_format = window_values == window_keys ? nullptr : window_values;
    if (window_codec) group.encode_with(window_codec, drafted);
  };
  if (layout.windows.empty() && layout.window == 0)
    return Error::unsupported(fmt::format(
        "KV format {}: window: no layers have blocks of their own here; omit it, or give the model a context that is "
        "longer than its layers' window and a step together",
        layout.format_name()));
  if (layout.window > 0) set(layout);
  for (KvLayout& group : layout.windows) set(group);
  return {};
}

double KvFormats::bits_per_value() const {
  if (codec) return codec->bits_per_value();
  return (keys->bits_per_value() + values->bits_per_value()) / (residual_below > 0 ? 1 : 2);
}

}  // namespace millrace
