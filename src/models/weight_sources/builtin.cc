// The built-in sources of weights. The first one is the default.
#include "models/neurons/neuron_source.h"
#include "models/weight_sources/records.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

constexpr const char* kPlaceHelp =
    "tensors that stay in memory or may leave it: PATTERN=memory or PATTERN=disk, with ';' between; the last match "
    "counts";

// Appends the options that all sources reading from the disk share.
std::vector<OptionSpec> with_disk_options(std::vector<OptionSpec> own) {
  own.insert(
      own.end(),
      {{"memory", Type::text, "", 0, 0, "bytes for weights, such as 2G; default: what --memory leaves, or all"},
       {"place", Type::text, "", 0, 0, kPlaceHelp},
       {"lock", Type::boolean, "false", 0, 0, "lock the weights that stay in memory (mlock)"},
       {"depth", Type::integer, "0", 0, 64, "reads of at most 1 MiB in flight; 0: measured by the reads of the start"},
       {"timeout", Type::number, "60", 0.001, 3600, "seconds that a step waits for weights before it fails"}});
  return own;
}

}  // namespace

const Registry<WeightSourceMember>& weight_sources() {
  static const Registry<WeightSourceMember> registry(
      {.loss = Loss::lossless, .test = "src/engine/weight_sources_test.cc", .proof = "docs/weights.md"},
      {
          {{"weights",
            "resident",
            "all weights stay in memory",
            {},
            {{"lock", Type::boolean, "false", 0, 0, "lock the weights in memory (mlock)"}}},
           kResidentWeights},
          {{"weights",
            "mapped",
            "layers are read from the packed cache as a pass reaches them, and released after it",
            {},
            {{"ahead", Type::integer, "1", 0, 64, "layers whose reading starts before they are needed"},
             {"pinned", Type::integer, "0", 0, 65536, "layers, from the first, that stay in memory"}}},
           kMappedWeights},
          {{"weights", "stream",
            "layers are read from the disk ahead of the pass, in memory of a given size; as many as fit stay there",
            "Sheng et al., 2023, FlexGen: High-Throughput Generative Inference of Large Language Models with a Single "
            "GPU",
            with_disk_options(
                {{"ahead", Type::integer, "2", 0, 64, "layers that are read ahead, in addition to the one that runs"},
                 {"resident", Type::integer, "-1", -1, 65536, "layers that stay in memory; -1: as many as fit"}})},
           kStreamWeights},
          {{"weights", "experts",
            "routed experts are read from the disk into a cache as tokens choose them; all else stays in memory",
            "Eliseev and Mazur, 2023, Fast Inference of Mixture-of-Experts Language Models with Offloading",
            with_disk_options(
                {{"keep", Type::text, "weighed", 0, 0, "experts that stay: weighed (by frequency), lru, lfu or arc"},
                 {"guess", Type::text, "router", 0, 0, "how experts are guessed to be read ahead: router, pairs, none"},
                 {"guesses", Type::integer, "4", 1, 64, "guessed experts for each token"},
                 {"cold", Type::text, "", 0, 0,
                  "format of cold experts, such as q4_0, whose use changes answers; default: no expert is cold"},
                 {"hot", Type::number, "0.25", 0, 1,
                  "share of each layer's experts that are not cold: the most used ones"},
                 {"profile", Type::text, "", 0, 0, "file of millrace offload profile, which counts experts' uses"}})},
           kExpertWeights},
          {{"weights", "flexgen",
            "as stream, with the shares of weights and keys in memory that a linear program finds for a batch of "
            "streams",
            "Sheng et al., 2023, FlexGen: High-Throughput Generative Inference of Large Language Models with a Single "
            "GPU",
            with_disk_options(
                {{"ahead", Type::integer, "2", 0, 64, "layers that are read ahead, in addition to the one that runs"},
                 {"streams", Type::integer, "16", 1, 4096, "streams that share each read of a layer, at most"},
                 {"prompt", Type::integer, "512", 1, 16777216, "tokens of a stream's prompt"},
                 {"generated", Type::integer, "128", 2, 16777216, "tokens of a stream's answer"},
                 {"keys", Type::text, "auto", 0, 0,
                  "where keys and values are: auto (the program decides, for each layer), or memory"},
                 {"key_bits", Type::number, "16", 1, 32,
                  "bits of a number of the KV cache, such as 4.5 for flexgen_kv"}})},
           kFlexgenWeights},
          {{"weights", "llm_in_flash",
            "neurons of MLPs with ReLU are read from the disk as tokens use them; those of the last tokens stay",
            "Alizadeh et al., 2023, LLM in a flash: Efficient Large Language Model Inference with Limited Memory",
            with_neuron_options(
                {{"window", Type::integer, "5", 1, 1 << 20, "tokens whose neurons stay in memory, if there is room"}})},
           kFlashWeights},
          {{"weights", "powerinfer",
            "the most frequent neurons of MLPs with ReLU stay in memory; others are read from the disk as tokens use "
            "them",
            "Song et al., 2023, PowerInfer: Fast Large Language Model Serving with a Consumer-grade GPU",
            with_neuron_options(
                {{"group", Type::integer, "64", 1, 65536, "neurons that are placed together"},
                 {"least", Type::integer, "0", 0, 1 << 20, "neurons that stay of a layer of which some stay"}})},
           kPowerInferWeights},
      });
  return registry;
}

}  // namespace millrace
