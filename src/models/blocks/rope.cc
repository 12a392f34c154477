#include "models/blocks/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/blocks/blocks.h"

namespace millrace {
namespace {

// Llama 3.1: long wavelengths are divided by factor, short ones are unchanged, with a linear blend between.
double scale_llama3(const RopeSpec& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double context = static_cast<double>(rope.original_context);
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  double blend = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - blend) * frequency / rope.factor + blend * frequency;
}

// Index of the pair that makes `rotations` turns over the original context (YaRN, eq. 17 solved for the dimension).
double yarn_dimension(const RopeSpec& rope, double rotations) {
  return static_cast<double>(rope.rotated) *
         std::log(static_cast<double>(rope.original_context) / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

void scale_yarn(const RopeSpec& rope, std::vector<double>& frequencies) {
  const double first = yarn_dimension(rope, rope.beta_fast), last = yarn_dimension(rope, rope.beta_slow);
  const double low = std::max(0.0, rope.truncate ? std::floor(first) : first);
  double high = std::min(static_cast<double>(rope.rotated - 1), rope.truncate ? std::ceil(last) : last);
  if (high <= low) high = low + 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& rope, int64_t context) {
  std::vector<double> out(static_cast<size_t>(rope.rotated / 2));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotated));
  switch (rope.scaling) {
    case RopeSpec::Scaling::none:
    case RopeSpec::Scaling::longrope: break;
    case RopeSpec::Scaling::linear:
      for (double& f : out) f /= rope.factor;
      break;
    case RopeSpec::Scaling::llama3:
      for (double& f : out) f = scale_llama3(rope, f);
      break;
    case RopeSpec::Scaling::yarn: scale_yarn(rope, out); break;
  }
  const bool is_short = rope.scaling == RopeSpec::Scaling::longrope && context <= rope.original_context;
  const auto& factors = is_short ? rope.short_factors : rope.long_factors;
  for (size_t i = 0; i < out.size() && i < factors.size(); ++i) out[i] /= static_cast<double>(factors[i]);
  return out;
}

float rope_scale(const RopeSpec& rope) {
  if (rope.attention_factor > 0.0) return static_cast<float>(rope.attention_factor);
  if (rope.scaling == RopeSpec::Scaling::yarn)
    return rope.factor > 1.0 ? static_cast<float>(0.1 * std::log(rope.factor) + 1.0) : 1.0f;
  if (rope.scaling == RopeSpec::Scaling::longrope) {
    if (rope.factor <= 1.0 || rope.original_context < 2) return 1.0f;
    return static_cast<float>(
        std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_context))));
  }
  return 1.0f;
}

void fill_rope_row(const ArchSpec& spec, const std::vector<std::vector<double>>& frequencies,
                   const std::vector<float>& scales, int32_t position, int64_t t, ForwardContext& context) {
  float* table = context.rope.as<float>();
  for (size_t r = 0; r < spec.ropes.size(); ++r) {
    const int64_t half = spec.ropes[r].rotated / 2;
    float* cos = table + t * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      double angle = static_cast<double>(position) * frequencies[r][static_cast<size_t>(i)];
      cos[i] = static_cast<float>(std::cos(angle)) * scales[r];
      cos[half + i] = static_cast<float>(std::sin(angle)) * scales[r];
    }
    table += context.limits().tokens * 2 * half;
  }
}

}  // namespace millrace
