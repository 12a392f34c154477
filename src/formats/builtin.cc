// The built-in formats, one line each, in the order in which they are listed to users.
#include "base/enum_table.h"
#include "formats/format.h"

#define MILLRACE_BUILTIN_FORMATS(ADD) \
  ADD(kF32)                           \
  ADD(kF16)                           \
  ADD(kBf16)                          \
  ADD(kF8E4m3)                        \
  ADD(kQ8_0)                          \
  ADD(kQ4_0)                          \
  ADD(kQ4_1)                          \
  ADD(kQ5_0)                          \
  ADD(kQ5_1)                          \
  ADD(kQ2K)                           \
  ADD(kQ3K)                           \
  ADD(kQ4K)                           \
  ADD(kQ5K)                           \
  ADD(kQ6K)                           \
  ADD(kTq1_0)                         \
  ADD(kTq2_0)                         \
  ADD(kIq1S)                          \
  ADD(kIq1M)                          \
  ADD(kIq2Xxs)                        \
  ADD(kIq2Xs)                         \
  ADD(kIq2S)                          \
  ADD(kIq3Xxs)                        \
  ADD(kIq3S)                          \
  ADD(kIq4Nl)                         \
  ADD(kIq4Xs)                         \
  ADD(kQ1_0)                          \
  ADD(kQ2_0)                          \
  ADD(kQ2G64)                         \
  ADD(kQ2G128)                        \
  ADD(kQ3G64)                         \
  ADD(kQ3G128)                        \
  ADD(kQ8FourOfEight)                 \
  ADD(kQ4FourOfEight)                 \
  ADD(kE8p)                           \
  ADD(kE8p3)                          \
  ADD(kE8p4)                          \
  ADD(kMxfp4)                         \
  ADD(kNvfp4)                         \
  ADD(kNf4)                           \
  ADD(kFp4)

namespace millrace {

#define MILLRACE_DECLARE_FORMAT(record) extern const Format record;
MILLRACE_BUILTIN_FORMATS(MILLRACE_DECLARE_FORMAT)
#undef MILLRACE_DECLARE_FORMAT

static_assert(std::size(kActivations) == kEnumerators<Activation>, "kActivations lists them all");

#define MILLRACE_LIST_FORMAT(record) &record,
const Registry<const Format*>& formats() {
  static const Registry<const Format*> registry("format", {.test = "tests/conformance/format_test.cc"},
                                                {MILLRACE_BUILTIN_FORMATS(MILLRACE_LIST_FORMAT)});
  return registry;
}
#undef MILLRACE_LIST_FORMAT

const Format* find_format(std::string_view name) {
  const auto* entry = formats().find(name);
  return entry ? entry->member : nullptr;
}

const Format* find_format_gguf(int gguf_type) {
  if (gguf_type < 0) return nullptr;
  for (const Format* format : formats().members()) {
    if (format->gguf_type == gguf_type) return format;
  }
  return nullptr;
}

const Format* find_format_safetensors(std::string_view dtype) {
  if (dtype.empty()) return nullptr;
  for (const Format* format : formats().members()) {
    if (format->safetensors == dtype) return format;
  }
  return nullptr;
}

// What a byte of indices means depends on the codebook, so these are no members: nothing can be converted to them, and
// they have no codec.
static constexpr Format indices(Activation activation) {
  return {
      .name = "codebook",
      .summary = "indices into a codebook that is stored next to the matrix, stored as GGUF's I8",
      .gguf_type = 24,
      .safetensors = "",
      .block_values = 1,
      .block_bytes = 1,
      .activation = activation,
      .decode = nullptr,
      .encode = nullptr,
      .find_non_finite = nullptr,
  };
}

const Format& codebook_indices() {
  static constexpr Format kIndices = indices(Activation::q8);
  return kIndices;
}

const Format& table16_indices() {
  static constexpr Format kIndices = indices(Activation::q8);
  return kIndices;
}

const Format& codeword_indices() {
  static constexpr Format kIndices = indices(Activation::q8);
  return kIndices;
}

}  // namespace millrace
