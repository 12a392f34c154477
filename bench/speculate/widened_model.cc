// widened_model: writes a model whose MLPs have more columns than the input's, which add nothing: random rows in gate
// and up, zeros in down. It answers as the input does and takes the time of a large model, so it measures what a
// drafter brings where weights are read from memory, with the acceptance of real text.
//
//   widened_model models/millrace-stories-6m.gguf big.gguf --hidden 212992 --format bf16
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "base/cpu.h"
#include "base/philox.h"
#include "formats/format.h"
#include "models/arch/writing.h"
#include "models/convert/conversion.h"

namespace millrace {
namespace {

struct Flags {
  std::string input, output, format = "bf16";
  int64_t hidden = 0;
};

// Uniform in (-0.02, 0.02): a pure function of tensor and index.
void fill_random(uint64_t tensor, uint64_t row, float* out, int64_t count) {
  for (int64_t i = 0; i < count; i += 4) {
    const auto bits = philox4x32(tensor, row, static_cast<uint64_t>(i));
    for (int64_t j = i; j < std::min(i + 4, count); ++j)
      out[j] = (static_cast<float>(bits[static_cast<size_t>(j - i)] >> 8) * 0x1p-23f - 1.0f) * 0.02f;
  }
}

// The input's rows, then random ones.
Result<void> produce_taller(const OutputTensor& tensor, uint64_t number, int64_t hidden, uint8_t* to,
                            ThreadPool& pool) {
  MILLRACE_TRY_VOID(tensor.produce(to, pool));
  const int64_t cols = tensor.dims[1], row_bytes = tensor.format->row_bytes(cols);
  pool.parallel_for(hidden - tensor.dims[0], [&](int64_t i, int) {
    std::vector<float> values(static_cast<size_t>(cols));
    const int64_t row = tensor.dims[0] + i;
    fill_random(number, static_cast<uint64_t>(row), values.data(), cols);
    tensor.format->encode(values.data(), to + row * row_bytes, cols);
  });
  return {};
}

// The input's columns, then zeros.
Result<void> produce_wider(const OutputTensor& tensor, int64_t hidden, uint8_t* to, ThreadPool& pool) {
  std::vector<uint8_t> narrow(static_cast<size_t>(tensor.bytes()));
  MILLRACE_TRY_VOID(tensor.produce(narrow.data(), pool));
  const int64_t rows = tensor.dims[0], cols = tensor.dims[1];
  const auto before = static_cast<size_t>(tensor.format->row_bytes(cols));
  const auto after = static_cast<size_t>(tensor.format->row_bytes(hidden));
  std::vector<uint8_t> zeros(after - before);
  const std::vector<float> values(static_cast<size_t>(hidden - cols));
  tensor.format->encode(values.data(), zeros.data(), hidden - cols);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    std::memcpy(to + row * after, narrow.data() + row * before, before);
    std::memcpy(to + row * after + before, zeros.data(), zeros.size());
  }
  return {};
}

Result<void> write(const Flags& flags) {
  MILLRACE_TRY(const ConversionInput input, open_conversion_input(flags.input, ""));
  ConversionTarget target{.format = find_format(flags.format)};
  if (!target.format) return Error::user(fmt::format("--format {}: unknown format", flags.format));
  target.layers = input.spec.layer_count();
  target.tied = true;
  const int64_t block = target.format->block_values;
  if (flags.hidden <= input.spec.hidden || flags.hidden % block != 0 || input.spec.hidden % block != 0)
    return Error::user(fmt::format("--hidden {}: needs more than the model's {} columns, both in whole blocks of {}",
                                   flags.hidden, input.spec.hidden, block));
  if (!input.spec.gated || std::ranges::any_of(input.spec.layers, &LayerSpec::moe))
    return Error::unsupported(fmt::format("{}: needs gated MLPs without experts", flags.input));

  ConvertReport report;
  MILLRACE_TRY(ConversionPlan plan, plan_conversion(input, true, target, report));
  plan.writer.set_u32(fmt::format("{}.feed_forward_length", arch_for_gguf(*input.arch)->name),
                      static_cast<uint32_t>(flags.hidden));
  ThreadPool pool(available_cores());
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const OutputTensor& tensor = plan.tensors[i];
    const bool taller = tensor.name.ends_with("ffn_gate.weight") || tensor.name.ends_with("ffn_up.weight");
    const bool wider = tensor.name.ends_with("ffn_down.weight");
    std::vector<int64_t> dims = tensor.dims;
    if (taller) dims[0] = flags.hidden;
    if (wider) dims[1] = flags.hidden;
    plan.writer.add_tensor(tensor.name, tensor.format, dims, [&, i, taller, wider](uint8_t* to, int64_t) {
      return taller  ? produce_taller(tensor, i, flags.hidden, to, pool)
             : wider ? produce_wider(tensor, flags.hidden, to, pool)
                     : tensor.produce(to, pool);
    });
  }
  return plan.writer.write(flags.output);
}

int run_main(int argc, char** argv) {
  CLI::App app{"Writes a model with wider MLPs that answers as the input does.", "widened_model"};
  Flags flags;
  app.add_option("IN", flags.input, "A GGUF file or a Hugging Face folder")->required();
  app.add_option("OUT", flags.output, "The GGUF file to write")->required();
  app.add_option("--hidden", flags.hidden, "Columns of each MLP")->required()->check(CLI::Range(1, 1 << 24));
  app.add_option("--format", flags.format, "Format of the matrices")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const Result<void> written = write(flags);
  if (written.ok()) return 0;
  fmt::print(stderr, "widened_model: {}\n", written.error().message);
  return exit_code(written.error().kind);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::run_main(argc, argv); }
