// synthetic_model: writes a GGUF file of a given shape and format with normally distributed random weights, for
// comparisons that depend only on the sizes of a model. One tensor is in memory at a time.
//
//   synthetic_model llama-1.1b --format q4_k_m model.gguf
//   synthetic_model llama-1.1b --layers 4 --format bf16 small.gguf
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>

#include "base/cpu.h"
#include "base/ordered_json.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "formats/format.h"
#include "models/arch/writing.h"
#include "models/convert/gguf_keys.h"
#include "models/convert/tokenizer_writer.h"
#include "synthetic_shape.h"

namespace millrace {
namespace {

constexpr double kDeviation = 0.02;
constexpr uint64_t kSkewTensor = uint64_t{1} << 32;                                       // no tensor has this number
constexpr uint64_t kLatentTensor = uint64_t{1} << 33, kNeuronTensor = uint64_t{1} << 35;  // nor these
constexpr int64_t kGateRank = 32;    // directions of the inputs that decide which neurons are active
constexpr double kGateShare = 0.9;   // share of a gate's variance that these directions have
constexpr double kNeuronSkew = 1.0;  // the shares of tokens that use a neuron vary by exp(skew * normal)

// Values [4 i, 4 i + 4) of a tensor: a pure function of seed, tensor and index (Box and Muller, 1958).
void four_normals(uint64_t seed, uint64_t tensor, uint64_t index, float* out) {
  const auto bits = philox4x32(seed, index, tensor);
  for (size_t pair = 0; pair < 2; ++pair) {
    const float u = (static_cast<float>(bits[2 * pair] >> 8) + 0.5f) * 0x1p-24f;
    const float angle = static_cast<float>(bits[2 * pair + 1] >> 8) * 0x1p-24f * 2.0f * std::numbers::pi_v<float>;
    const float radius = static_cast<float>(kDeviation) * std::sqrt(-2.0f * std::log(u));
    out[2 * pair] = radius * std::cos(angle);
    out[2 * pair + 1] = radius * std::sin(angle);
  }
}

struct Flags {
  std::string shape_name, output, format = "q4_0";
  SyntheticShape shape = {};
  uint64_t seed = 1;
  double router_skew = 0;
  double relu = 0;  // share of neurons that are active; 0: the shape's own activation
  int threads = 0;
};

// The factor of an expert's row of a router: exp(skew * normal). Tokens then choose a few experts often.
float router_factor(const Flags& flags, uint64_t tensor, int64_t expert) {
  float normals[4];
  four_normals(flags.seed, kSkewTensor + tensor, static_cast<uint64_t>(expert), normals);
  return std::exp(static_cast<float>(flags.router_skew / kDeviation) * normals[0]);
}

// One normal value: a pure function of seed, tensor and index.
float normal_at(const Flags& flags, uint64_t tensor, uint64_t index) {
  float normals[4];
  four_normals(flags.seed, tensor, index, normals);
  return normals[0] / static_cast<float>(kDeviation);
}

// The z with P(normal > z) = p, by bisection.
double upper_quantile(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) / 2 > p ? low : high) = middle;
  }
  return low;
}

// The biases of a layer's gates, which make a neuron active for its planted share of tokens.
std::vector<float> gate_biases(const Flags& flags, uint64_t tensor, int64_t hidden) {
  std::vector<float> out(static_cast<size_t>(hidden));
  for (int64_t n = 0; n < hidden; ++n) {
    const double normal = normal_at(flags, kNeuronTensor + tensor, static_cast<uint64_t>(n));
    const double share = flags.relu * std::exp(kNeuronSkew * normal - kNeuronSkew * kNeuronSkew / 2);
    const double deviation = kDeviation * std::sqrt(static_cast<double>(flags.shape.width));
    out[static_cast<size_t>(n)] = static_cast<float>(-deviation * upper_quantile(std::min(0.9, share)));
  }
  return out;
}

// Replaces most of a gate's row of noise by a combination of kGateRank directions.
void plant_gate(const Flags& flags, uint64_t tensor, int64_t neuron, const std::vector<float>& directions, float* row,
                int64_t cols) {
  const auto noise = static_cast<float>(std::sqrt(1 - kGateShare));
  for (int64_t i = 0; i < cols; ++i) row[i] *= noise;
  for (int64_t k = 0; k < kGateRank; ++k) {
    const float factor = static_cast<float>(kDeviation * std::sqrt(kGateShare / kGateRank)) *
                         normal_at(flags, kLatentTensor + tensor, static_cast<uint64_t>(neuron * kGateRank + k));
    const float* const direction = directions.data() + k * cols;
    for (int64_t i = 0; i < cols; ++i) row[i] += factor * direction[i];
  }
}

std::vector<float> gate_directions(const Flags& flags, uint64_t tensor, int64_t cols) {
  std::vector<float> out;
  for (int64_t i = 0; i < kGateRank * cols; ++i)
    out.push_back(normal_at(flags, 2 * kLatentTensor + tensor, static_cast<uint64_t>(i)));
  return out;
}

void fill(const OutputTensor& tensor, const Flags& flags, uint64_t number, ThreadPool& pool, uint8_t* destination) {
  const int64_t cols = tensor.dims.back(), row_bytes = tensor.format->row_bytes(cols);
  const int64_t rows = tensor.bytes() / row_bytes;
  if (tensor.name.ends_with("ffn_gate.bias")) {
    const std::vector<float> biases = gate_biases(flags, number, cols);
    tensor.format->encode(biases.data(), destination, cols);
    return;
  }
  if (tensor.dims.size() == 1) {  // norms scale by one
    const std::vector<float> ones(static_cast<size_t>(cols), 1.0f);
    tensor.format->encode(ones.data(), destination, cols);
    return;
  }
  const bool router = flags.router_skew > 0 && tensor.name.ends_with("ffn_gate_inp.weight");
  const bool gate = flags.relu > 0 && tensor.name.ends_with("ffn_gate.weight");
  const std::vector<float> directions = gate ? gate_directions(flags, number, cols) : std::vector<float>();
  pool.parallel_for(rows, [&](int64_t row, int) {
    thread_local std::vector<float> values;
    values.resize(static_cast<size_t>(cols + 3));
    const auto first = static_cast<uint64_t>(row * ((cols + 3) / 4));
    for (int64_t i = 0; i < cols; i += 4)
      four_normals(flags.seed, number, first + static_cast<uint64_t>(i / 4), &values[static_cast<size_t>(i)]);
    if (router) {
      const float factor = router_factor(flags, number, row);
      for (float& value : values) value *= factor;
    }
    if (gate) plant_gate(flags, number, row, directions, values.data(), cols);
    tensor.format->encode(values.data(), destination + row * row_bytes, cols);
  });
}

// MLPs with ReLU, and a bias for each gate.
Result<void> plant_relu(ArchSpec& spec, std::vector<OutputTensor>& tensors) {
  if (!spec.gated || spec.moe.experts > 0) return Error::user("--relu: the shape has no dense MLPs with gates");
  spec.activation = HiddenActivation::relu;
  for (int64_t l = 0; l < spec.layer_count(); ++l) {
    OutputTensor bias;
    bias.name = fmt::format("blk.{}.ffn_gate.bias", l);
    bias.format = find_format("f32");
    bias.dims = {spec.hidden};
    tensors.push_back(std::move(bias));
  }
  return {};
}

Result<void> write(const Flags& flags) {
  const SyntheticShape& shape = flags.shape;
  MILLRACE_TRY(ArchSpec spec, synthetic_spec(shape));
  MILLRACE_TRY(auto tensors, synthetic_tensors(spec, flags.format));
  if (flags.relu > 0) MILLRACE_TRY_VOID(plant_relu(spec, tensors));
  const auto archs_all = archs().members();
  const Arch* arch = *std::ranges::find(archs_all, shape.arch, &Arch::name);
  std::vector<FactorTensor> factors;  // none: plain rotations
  const auto keys = write_arch_gguf(*arch, spec, factors);
  const std::string stored_as(arch_for_gguf(*arch)->name);

  GgufWriter writer;
  set_general_keys(writer, stored_as, fmt::format("synthetic {} {}", shape.name, flags.format), tensors);
  for (const auto& [key, value] : keys.items()) set_json(writer, stored_as + "." + key, value);
  std::vector<std::string> notes;
  MILLRACE_TRY_VOID(write_gguf_tokenizer(synthetic_tokenizer(spec.vocab), spec.vocab, writer, notes));

  ThreadPool pool(flags.threads > 0 ? flags.threads : available_cores());
  int64_t parameters = 0, bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OutputTensor& tensor = tensors[i];
    bytes += tensor.bytes();
    parameters += tensor.bytes() / tensor.format->block_bytes * tensor.format->block_values;
    writer.add_tensor(tensor.name, tensor.format, tensor.dims,
                      [&tensor, &flags, &pool, i](uint8_t* to, int64_t) -> Result<void> {
                        fill(tensor, flags, i, pool, to);
                        return {};
                      });
  }
  MILLRACE_TRY_VOID(writer.write(flags.output));
  fmt::print("{}: {} {}, {:.1f} M parameters, {:.1f} MB\n", flags.output, shape.name, flags.format,
             static_cast<double>(parameters) * 1e-6, static_cast<double>(bytes) * 1e-6);
  return {};
}

int run_main(int argc, char** argv) {
  CLI::App app{"Writes a GGUF model of a given shape and format with normally distributed random weights.",
               "synthetic_model"};
  Flags flags;
  std::string shapes = "Shapes:\n";
  for (const SyntheticShape& shape : synthetic_shapes())
    shapes += fmt::format("  {:14} {} layers of {}, MLP {}, heads {}/{} of {}: {}\n", shape.name, shape.layers,
                          shape.width, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.summary);
  app.footer(shapes);
  std::map<std::string, int64_t> sizes;
  app.add_option("SHAPE", flags.shape_name, "One of the shapes below")->required();
  app.add_option("OUT", flags.output, "The file to write")->required();
  app.add_option("--format", flags.format, "f32, f16, bf16, q8_0, q4_0, q4_k ..., or the mix q4_k_m")
      ->capture_default_str();
  for (const char* name : {"layers", "width", "hidden", "heads", "kv-heads", "head-dim", "experts", "used", "vocab"})
    app.add_option_function<int64_t>(
           std::string("--") + name, [&sizes, name](int64_t n) { sizes[name] = n; }, "Overrides the shape's value")
        ->check(CLI::Range(1, 1 << 20));
  app.add_option("--seed", flags.seed, "Seed of the weights")->capture_default_str();
  app.add_option(
         "--router-skew", flags.router_skew,
         "Makes tokens prefer some experts: the norms of a router's rows vary by exp(SKEW * normal). With 0.45, "
         "half of 128 experts get 90 % of the choices")
      ->check(CLI::Range(0.0, 4.0));
  app.add_option(
         "--relu", flags.relu,
         "MLPs with ReLU whose neurons are active for this share of tokens, on average; some often, most rarely. "
         "32 directions of the inputs have nine tenths of the gates' variance")
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("-t,--threads", flags.threads, "Threads; 0: all cores")->check(CLI::Range(0, 1024));
  CLI11_PARSE(app, argc, argv);
  const auto known = synthetic_shapes();
  const auto found = std::ranges::find(known, flags.shape_name, &SyntheticShape::name);
  if (found == known.end()) {
    fmt::print(stderr, "synthetic_model: {}: no such shape; see --help\n", flags.shape_name);
    return 2;
  }
  flags.shape = *found;
  const std::pair<const char*, int64_t*> fields[] = {
      {"layers", &flags.shape.layers},   {"width", &flags.shape.width},       {"hidden", &flags.shape.hidden},
      {"heads", &flags.shape.heads},     {"kv-heads", &flags.shape.kv_heads}, {"head-dim", &flags.shape.head_dim},
      {"experts", &flags.shape.experts}, {"used", &flags.shape.used},         {"vocab", &flags.shape.vocab}};
  for (const auto& [name, field] : fields)
    if (auto given = sizes.find(name); given != sizes.end()) *field = given->second;
  const Result<void> written = write(flags);
  if (written.ok()) return 0;
  fmt::print(stderr, "synthetic_model: {}\n", written.error().message);
  return exit_code(written.error().kind);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::run_main(argc, argv); }
