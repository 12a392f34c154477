#include "kv/kv_formats.h"

#include <fmt/format.h>

namespace millrace {
namespace {

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

}  // namespace

const std::vector<OptionSpec>& kv_row_options() {
  using Type = OptionSpec::Type;
  static const std::vector<OptionSpec> options = {
      {"values", Type::text, "", 0, 0, "format of values; default: that of keys"},
      {"window", Type::text, "", 0, 0,
       "format of keys and values in layers with a window, where these have blocks of their own; default: as the "
       "others"},
      {"window_values", Type::text, "", 0, 0, "format of values in those layers; default: that of their keys"},
  };
  return options;
}

Result<KvFormats> find_kv_formats(std::string_view text, const KernelTable& kernels) {
  KvFormats out;
  MILLRACE_TRY(out.codec, find_kv_codec(text));
  if (out.codec) {
    out.keys = out.values = find_format("f16");
    return out;
  }
  const auto colon = text.find(':');
  const Format* keys = find_format(std::string(text.substr(0, colon)));
  if (!keys || !kernels.find_attention(keys)) return out;
  out.keys = out.values = keys;
  if (colon == std::string_view::npos) return out;
  const std::string label = fmt::format("KV format {}", keys->name);
  const auto given = parse_options(text.substr(colon + 1), kv_row_options());
  if (!given.ok()) return Error::user(fmt::format("{}: {}", label, given.error().message));
  const auto set = [&]() -> Result<void> {
    MILLRACE_TRY_VOID(set_rows(kernels, *given, "values", out.values));
    MILLRACE_TRY_VOID(set_rows(kernels, *given, "window", out.window_keys));
    out.window_values = out.window_keys;
    if (!given->text("window_values").empty() && !out.window_keys) out.window_keys = out.keys;
    return set_rows(kernels, *given, "window_values", out.window_values);
  };
  const auto done = set();
  if (!done.ok()) return Error::user(fmt::format("{}: {}", label, done.error().message));
  return out;
}

std::string kv_format_of_one_group(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || kv_codecs().find(text.substr(0, colon))) return std::string(text);
  const auto given = parse_options(text.substr(colon + 1), kv_row_options());
  if (!given.ok()) return std::string(text);
  const std::string& values = given->text("values");
  return std::string(text.substr(0, colon)) + (values.empty() ? "" : ":values=" + values);
}

KvLayout KvFormats::layout(int64_t block_tokens, std::vector<KvLayer> layers, int64_t drafted) const {
  KvLayout out{.format = keys, .block_tokens = block_tokens, .layers = std::move(layers)};
  if (values != keys) out.value_format = values;
  if (codec) out.encode_with(codec, drafted);
  return out;
}

Result<void> KvFormats::set_window_formats(KvLayout& layout) const {
  if (!window_keys) return {};
  const auto set = [this](KvLayout& group) {
    group.format = window_keys;
    group.value_format = window_values == window_keys ? nullptr : window_values;
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
  return codec ? codec->bits_per_value() : (keys->bits_per_value() + values->bits_per_value()) / 2;
}

}  // namespace millrace
