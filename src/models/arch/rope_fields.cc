#include "models/arch/rope_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/ordered_json.h"
#include "models/arch/common.h"
#include "models/arch/gguf_rope.h"

namespace millrace {
namespace {

using RopeJson = nlohmann::ordered_json;

// Fields of a rope object that read_rope() reads, and those that change nothing here: how a checkpoint was trained, and
// how a multimodal model splits dims over axes, which are equal for text.
constexpr std::string_view kRopeFields[] = {
    "rope_type",       "type",
    "rope_theta",      "partial_rotary_factor",
    "factor",          "original_max_position_embeddings",
    "low_freq_factor", "high_freq_factor",
    "beta_fast",       "beta_slow",
    "mscale",          "mscale_all_dim",
    "truncate",        "attention_factor",
    "long_factor",     "short_factor",
    "finetuned",       "max_position_embeddings",
    "mrope_section",   "mrope_interleaved",
};

void refuse_unknown(ConfigReader& fields) {
  for (const std::string& key : fields.keys())
    if (std::ranges::find(kRopeFields, key) == std::end(kRopeFields) && fields.has(key))
      fields.fail(Error::unsupported(
          fmt::format("{}: {}: unknown field, which may change the rotation of positions", fields.source(), key)));
}

void read_rotated(ConfigReader& fields, int64_t head_dim, RopeSpec& rope) {
  if (!fields.has("partial_rotary_factor")) return;
  const double partial = fields.number_or("partial_rotary_factor", 1.0);
  if (!(partial > 0.0 && partial <= 1.0)) {
    fields.fail(Error::corrupt(
        fmt::format("{}: partial_rotary_factor must be above 0 and at most 1, is {}", fields.source(), partial)));
    return;
  }
  rope.rotated = static_cast<int64_t>(static_cast<double>(head_dim) * partial);
}

// The factor that extends the context. Files may state the original context alone.
void read_factor(ConfigReader& fields, int64_t context, RopeSpec& rope) {
  rope.original_context = fields.count_or("original_max_position_embeddings", rope.original_context, 1, kMaxContext);
  rope.factor = fields.number_or("factor", static_cast<double>(context) / static_cast<double>(rope.original_context));
  if (!(rope.factor > 0.0))
    fields.fail(Error::corrupt(fmt::format("{}: factor must be positive, is {}", fields.source(), rope.factor)));
}

// YaRN as Transformers' _compute_yarn_parameters reads it: the ratio of the two temperatures if both are given.
void read_yarn(ConfigReader& fields, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::yarn;
  rope.beta_fast = fields.number_or("beta_fast", 32.0);
  rope.beta_slow = fields.number_or("beta_slow", 1.0);
  rope.truncate = fields.flag_or("truncate", true);
  const double mscale = fields.number_or("mscale", 0.0), all_dim = fields.number_or("mscale_all_dim", 0.0);
  if (rope.attention_factor <= 0.0 && mscale != 0.0 && all_dim != 0.0)
    rope.attention_factor = yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, all_dim);
}

void read_scaling(ConfigReader& fields, int64_t head_dim, int64_t context, RopeSpec& rope) {
  const std::string type = fields.text_or("rope_type", fields.text_or("type", "default"));
  if (type == "default" || type == "none") return;
  if (type == "proportional") {
    const double part = fields.number_or("partial_rotary_factor", 1.0);
    if (!(part >= 0.0 && part <= 1.0))
      return fields.fail(
          Error::corrupt(fmt::format("{}: partial_rotary_factor must be 0 to 1, is {}", fields.source(), part)));
    return rotate_part(rope, head_dim, part, fields.number_or("factor", 1.0));
  }
  read_factor(fields, context, rope);
  // Transformers reads this field for the two types below only.
  if (type == "yarn" || type == "longrope" || type == "su")
    rope.attention_factor = fields.number_or("attention_factor", 0.0);
  if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::linear;
    rope.factor = fields.number_or("factor", 1.0);
  } else if (type == "llama3") {
    rope.scaling = RopeSpec::Scaling::llama3;
    rope.low_freq_factor = fields.number_or("low_freq_factor", 1.0);
    rope.high_freq_factor = fields.number_or("high_freq_factor", 4.0);
    if (!(rope.high_freq_factor > rope.low_freq_factor))
      fields.fail(Error::corrupt(fmt::format("{}: high_freq_factor must be above low_freq_factor", fields.source())));
  } else if (type == "yarn") {
    read_yarn(fields, rope);
  } else if (type == "longrope" || type == "su") {
    rope.scaling = RopeSpec::Scaling::longrope;
    for (double f : fields.numbers_or_empty("long_factor")) rope.long_factors.push_back(static_cast<float>(f));
    for (double f : fields.numbers_or_empty("short_factor")) rope.short_factors.push_back(static_cast<float>(f));
  } else if (type == "dynamic") {
    rope.dynamic = true;
    rope.factor = 1.0;
  } else {
    fields.fail(Error::unsupported(fmt::format("{}: rope scaling '{}'", fields.source(), type)));
  }
}

// Reads one rope object over `rope`, which holds the fields of the top level.
RopeSpec read_rope(ConfigReader& config, const RopeJson& object, const std::string& where, const ArchSpec& spec,
                   RopeSpec rope) {
  ConfigReader fields(object, fmt::format("{}: {}", config.source(), where));
  refuse_unknown(fields);
  rope.theta = fields.number_or("rope_theta", rope.theta);
  read_rotated(fields, spec.head_dim, rope);
  read_scaling(fields, spec.head_dim, spec.context, rope);
  if (const auto status = fields.status(); !status.ok()) config.fail(status.error());
  return rope;
}

bool is_layer_types(const RopeJson& object) {
  return std::ranges::any_of(object, [](const RopeJson& value) { return value.is_object(); });
}

// The fields of `rope_scaling` and `rope_parameters` as one object. A field that both state differently is an error.
RopeJson merged_objects(ConfigReader& config) {
  RopeJson out = RopeJson::object();
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const RopeJson* object = config.value(key);
    if (!object) continue;
    if (!object->is_object()) {
      config.fail(Error::corrupt(fmt::format("{}: {} must be an object", config.source(), key)));
      continue;
    }
    for (const auto& [name, value] : object->items()) {
      if (value.is_null()) continue;
      if (out.contains(name) && out[name] != value)
        config.fail(Error::corrupt(
            fmt::format("{}: rope_scaling and rope_parameters have different values of {}", config.source(), name)));
      out[name] = value;
    }
  }
  return out;
}

}  // namespace

void rotate_part(RopeSpec& rope, int64_t head_dim, double part, double factor) {
  constexpr float kStill = 1e30f;  // divisor of a frequency that rotates nothing
  const auto rotated = static_cast<int64_t>(part * static_cast<double>(head_dim)) / 2;
  rope.rotated = head_dim;
  rope.long_factors.assign(static_cast<size_t>(head_dim / 2), kStill);
  std::fill_n(rope.long_factors.begin(), std::min(rotated, head_dim / 2), static_cast<float>(factor));
}

void read_huggingface_ropes(ConfigReader& config, ArchSpec& spec) {
  RopeSpec top;
  top.rotated = spec.head_dim;
  read_rotated(config, spec.head_dim, top);
  top.theta = config.number_or("rope_theta", top.theta);
  top.original_context = config.count_or("original_max_position_embeddings", spec.context, 1, kMaxContext);
  const RopeJson fields = merged_objects(config);
  if (!is_layer_types(fields)) {
    spec.ropes = {read_rope(config, fields, "rope_parameters", spec, top)};
    return;
  }
  spec.ropes = {top};
  for (const char* type : {"full_attention", "sliding_attention"}) {
    if (!fields.contains(type)) continue;
    const RopeSpec one = read_rope(config, fields[type], fmt::format("rope_parameters: {}", type), spec, top);
    if (type == std::string_view("full_attention")) {
      spec.ropes[0] = one;
    } else {
      spec.ropes.push_back(one);
    }
  }
  for (const auto& [name, value] : fields.items())
    if (name != "full_attention" && name != "sliding_attention")
      config.fail(
          Error::unsupported(fmt::format("{}: rope_parameters: {}: unknown layer type or field, which may "
                                         "change the rotation of positions",
                                         config.source(), name)));
}

void assign_window_ropes(ArchSpec& spec) {
  if (spec.ropes.size() < 2) return;
  if (std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.rope > 0; })) return;
  for (LayerSpec& layer : spec.layers)
    if (layer.rope == 0 && layer.window > 0) layer.rope = 1;
}

double rope_object_number(ConfigReader& config, std::string_view key) {
  const RopeJson fields = merged_objects(config);
  ConfigReader reader(fields, fmt::format("{}: rope_parameters", config.source()));
  const double out = reader.number_or(key, 0.0);
  if (const auto status = reader.status(); !status.ok()) config.fail(status.error());
  return out;
}

}  // namespace millrace
