// The built-in kernel switches.
#include <fmt/format.h>

#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

const Registry<KernelSwitch>& kernel_switches() {
  static const Registry<KernelSwitch> registry(
      {.loss = Loss::lossless, .test = "tests/properties/kernel_switches_test.cc"},
      {
          {{"kernel",
            "fused",
            "operations of a layer that follow each other run as one",
            "Zhai et al., 2022, ByteTransformer: A High-Performance Transformer Boosted for Variable-Length Inputs; "
            "Aminabadi et al., 2022, DeepSpeed Inference: Enabling Efficient Inference of Transformer Models at "
            "Unprecedented Scale",
            {{"parts", Type::text, "all", 0, 0,
              "all, none, or some of rows, qkv, heads, gate_up, activation, bias, experts, with + between"}}},
           kFusedKernels},
          {{"kernel", "shared_prefix", "keys that several decoding streams share are read once for all of them",
            "Ye et al., 2025, FlashInfer: Efficient and Customizable Attention Engine for LLM Inference Serving; "
            "Juravsky et al., 2024, Hydragen: High-Throughput LLM Inference with Shared Prefixes"},
           kSharedPrefix},
          {{"kernel",
            "unified_max",
            "attention weights are relative to one maximum, not to each row's own; rows that leave its range are "
            "computed again",
            "Hong et al., 2023, FlashDecoding++: Faster Large Language Model Inference on GPUs",
            {{"max", Type::number, "0", -1000, 1000, "the maximum, a score"}},
            Loss::lossy},
           kUnifiedMax},
          {{"kernel",
            "by_shape",
            "products take the way that was measured to be the fastest for their shape and number of tokens",
            "Hong et al., 2023, FlashDecoding++: Faster Large Language Model Inference on GPUs",
            {{"file", Type::text, "", 0, 0,
              "what `millrace bench --calibrate -o FILE` wrote; empty: every kernel's own choice"}}},
           kByShape},
          {{"kernel",
            "gemv",
            "products of a few tokens are one matrix-vector product each; the baseline of multiplying tokens together",
            "Hong et al., 2023, FlashDecoding++: Faster Large Language Model Inference on GPUs",
            {{"tokens", Type::integer, "8", 1, 4096,
              "maximum number of tokens; products of more tokens multiply them together"}}},
           kGemv},
          {{"kernel",
            "npu",
            "prompts run as int8 products of fixed chunks, one scale for a tensor, with outliers in float",
            "Xu et al., 2024, Fast On-device LLM Inference with NPUs",
            {{"chunk", Type::integer, "256", 16, 4096, "tokens of a chunk, a multiple of 16; shorter ones are padded"},
             {"outliers", Type::text, "shadow", 0, 0,
              "shadow: what exceeds an input's levels is computed in float; none: the levels cover everything"},
             {"pruned", Type::number, "0.85", 0, 1,
              "fraction of the inputs, the least important ones, that have no outliers"},
             {"channels", Type::number, "0.01", 0, 0.5,
              "fraction of the channels that may exceed the levels of an input with outliers"},
             {"threads", Type::integer, "0", 0, 256,
              "threads of the device's own group; 0: the pass's own threads run its graphs"},
             {"order", Type::text, "out_of_order", 0, 0,
              "order of the subgraphs of a product on the two groups: out_of_order or in_order"},
             {"scales", Type::text, "", 0, 0,
              "what `millrace npu-scales -o FILE` wrote; empty: the model is calibrated with tokens that it samples"}},
            Loss::lossy},
           kNpu},
          {{"kernel",
            "padded_experts",
            "every expert computes the same number of rows, padded, and drops tokens beyond it; answers depend on the "
            "batch",
            "Lepikhin et al., 2020, GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding; "
            "Gale et al., 2022, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts",
            {{"capacity", Type::number, "1.25", 0.05, 64, "rows of an expert, as a multiple of the mean"}},
            Loss::lossy},
           kPaddedExperts},
          {{"kernel",
            "fastdecode",
            "keys and values are in worker processes, which run attention for the engine; same bits",
            "He and Zhai, 2024, FastDecode: High-Throughput GPU-Efficient LLM Serving using Heterogeneous Pipelines",
            {{"count", Type::integer, "1", 1, 64, "workers; each holds a part of the KV heads of every layer"},
             {"threads", Type::integer, "1", 1, 256, "threads of each worker that the engine starts"},
             {"batches", Type::integer, "1", 1, 2,
              "2: a step is two mini-batches, one of which attends while the matrices of the other run"},
             {"transport", Type::text, "shm", 0, 0, "shm: rows are in shared memory; socket: they are sent"},
             {"hosts", Type::text, "", 0, 0,
              "running workers, HOST:PORT with + between, which replace count and transport; empty: the engine starts "
              "its own"},
             {"timeout", Type::number, "10", 0.01, 3600, "seconds for one layer, after which a worker counts as dead"},
             {"program", Type::text, "", 0, 0, "program of own workers; empty: this one, or millrace next to it"}},
            Loss::lossless,
            "tests/properties/attention_workers_test.cc"},
           kFastDecode},
      });
  return registry;
}

Result<ForwardSwitches> make_forward_switches(std::span<const std::string> chosen) {
  ForwardSwitches switches;
  for (const std::string& text : chosen) {
    if (text.starts_with(kPatternPrefix)) {
      if (switches.pattern) return Error::user("attention: only one pattern can be chosen");
      MILLRACE_TRY(switches.pattern, make_attention_pattern(std::string_view(text).substr(kPatternPrefix.size())));
      switches.attention.pattern = switches.pattern.get();
      continue;
    }
    if (text.starts_with(kExitPrefix)) {
      if (switches.exit) return Error::user("exit: only one gate can be chosen");
      MILLRACE_TRY(switches.exit, make_exit_gate(std::string_view(text).substr(kExitPrefix.size())));
      continue;
    }
    const std::string name = text.substr(0, text.find(':'));
    const auto* entry = kernel_switches().find(name);
    if (!entry) return Error::user(fmt::format("kernel: unknown '{}'; available: {}", name, kernel_switches().names()));
    const auto wrong = [&](const Error& error) {
      return Error::user(fmt::format("kernel {}: {}", name, error.message));
    };
    const auto options = parse_options(text.size() > name.size() ? std::string_view(text).substr(name.size() + 1) : "",
                                       entry->info.options);
    if (!options.ok()) return wrong(options.error());
    if (auto set = entry->member.set(*options, switches); !set.ok()) return wrong(set.error());
  }
  return switches;
}

}  // namespace millrace
