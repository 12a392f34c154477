#include "foreign_flags.h"

namespace millrace {
namespace {

using ForeignKind = ForeignFlag::Kind;
using Takes = ForeignFlag::Value;

constexpr std::string_view kNoGpu = "weights are on the CPU";
constexpr std::string_view kAlwaysOn = "always on";
constexpr std::string_view kNoLog = "only millrace serve writes a log";
constexpr std::string_view kNoPictures = "models do not read pictures yet; text works without this file";
constexpr std::string_view kReasoning =
    "in serve a request chooses with its field reasoning_format; run and chat print the text as it is";
constexpr std::string_view kTimings = "run prints its timings always, chat with /set timings on";
constexpr std::string_view kColours = "text is printed without colours";

constexpr ForeignFlag kForeignFlags[] = {
    // llama.cpp
    {"-hf", ForeignKind::same, Takes::one, "--model", "hf:"},
    {"-hfr", ForeignKind::same, Takes::one, "--model", "hf:"},
    {"--hf-repo", ForeignKind::same, Takes::one, "--model", "hf:"},
    {"-hfd", ForeignKind::same, Takes::one, "--model-draft", "hf:"},
    {"-hff", ForeignKind::refused, Takes::one, "name the file as -hf OWNER/NAME:FILE"},
    {"--hf-file", ForeignKind::refused, Takes::one, "name the file as -hf OWNER/NAME:FILE"},
    {"-hft", ForeignKind::refused, Takes::one, "set the environment variable HF_TOKEN"},
    {"--hf-token", ForeignKind::refused, Takes::one, "set the environment variable HF_TOKEN"},
    {"-ngl", ForeignKind::ignored, Takes::one, kNoGpu},
    {"--gpu-layers", ForeignKind::ignored, Takes::one, kNoGpu},
    {"--n-gpu-layers", ForeignKind::ignored, Takes::one, kNoGpu},
    {"-ngld", ForeignKind::ignored, Takes::one, kNoGpu},
    {"-fa", ForeignKind::ignored, Takes::on_off, "attention is always computed in blocks"},
    {"--flash-attn", ForeignKind::ignored, Takes::on_off, "attention is always computed in blocks"},
    {"-np", ForeignKind::same, Takes::one, "--parallel"},
    {"--n-parallel", ForeignKind::same, Takes::one, "--parallel"},
    {"-ctk", ForeignKind::same, Takes::one, "--ctk"},
    {"-ctv", ForeignKind::same, Takes::one, "--ctv"},
    {"-md", ForeignKind::same, Takes::one, "--model-draft"},
    {"--draft-n", ForeignKind::same, Takes::one, "--draft-max"},
    {"--spec-draft-n-max", ForeignKind::same, Takes::one, "--draft-max"},
    {"-pg", ForeignKind::same, Takes::one, "--pg"},
    {"-ub", ForeignKind::same, Takes::one, "--batch-tokens"},
    {"--ubatch-size", ForeignKind::same, Takes::one, "--batch-tokens"},
    {"-tb", ForeignKind::ignored, Takes::one, "prompts use the threads of -t"},
    {"--threads-batch", ForeignKind::ignored, Takes::one, "prompts use the threads of -t"},
    {"--ctx-size", ForeignKind::same, Takes::one, "--context"},
    {"--predict", ForeignKind::same, Takes::one, "--max-tokens"},
    {"--n-predict", ForeignKind::same, Takes::one, "--max-tokens"},
    {"-sys", ForeignKind::same, Takes::one, "--system"},
    {"--system-prompt", ForeignKind::same, Takes::one, "--system"},
    {"-j", ForeignKind::same, Takes::one, "--json-schema"},
    {"--grammar-file", ForeignKind::same, Takes::one, "--grammar"},
    {"-a", ForeignKind::same, Takes::one, "--alias"},
    {"--typical", ForeignKind::same, Takes::one, "--typical-p"},
    {"--repeat-last-n", ForeignKind::same, Takes::one, "--penalty-window"},
    {"--samplers", ForeignKind::refused, Takes::one, "choose samplers with --use sampler=NAME"},
    {"--chat-template", ForeignKind::refused, Takes::one,
     "give the template's file with --chat-template-file (serve); others use the model's own"},
    {"-cb", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--cont-batching", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--jinja", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--metrics", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--slots", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--embedding", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--embeddings", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--rerank", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--reranking", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"-kvu", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--kv-unified", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--cache-reuse", ForeignKind::ignored, Takes::one, "prefixes are reused by whole blocks"},
    {"--mmap", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--no-mmap", ForeignKind::ignored, Takes::none, "weights are packed in memory after they are mapped"},
    {"-cnv", ForeignKind::refused, Takes::none, "use millrace chat"},
    {"--conversation", ForeignKind::refused, Takes::none, "use millrace chat"},
    {"-no-cnv", ForeignKind::ignored, Takes::none, "run continues a text"},
    {"--no-conversation", ForeignKind::ignored, Takes::none, "run continues a text"},
    {"-i", ForeignKind::refused, Takes::none, "use millrace chat"},
    {"-dev", ForeignKind::refused, Takes::one, "there is one device, the CPU"},
    {"--device", ForeignKind::refused, Takes::one, "there is one device, the CPU"},
    {"-sm", ForeignKind::ignored, Takes::one, kNoGpu},
    {"--split-mode", ForeignKind::ignored, Takes::one, kNoGpu},
    {"-mg", ForeignKind::ignored, Takes::one, kNoGpu},
    {"--main-gpu", ForeignKind::ignored, Takes::one, kNoGpu},
    {"-ts", ForeignKind::ignored, Takes::one, kNoGpu},
    {"--tensor-split", ForeignKind::ignored, Takes::one, kNoGpu},
    {"--numa", ForeignKind::refused, Takes::one, "start the process with numactl"},
    {"--rope-scaling", ForeignKind::refused, Takes::one, "the scaling is read from the model's files"},
    {"--rope-scale", ForeignKind::refused, Takes::one, "the scaling is read from the model's files"},
    {"--rope-freq-base", ForeignKind::refused, Takes::one, "the base is read from the model's files"},
    {"--slot-save-path", ForeignKind::refused, Takes::one, "store prefixes on a disk with --kv-ssd"},
    {"-r", ForeignKind::same, Takes::one, "--stop"},
    {"--reverse-prompt", ForeignKind::same, Takes::one, "--stop"},
    {"-co", ForeignKind::ignored, Takes::on_off, kColours},
    {"--color", ForeignKind::ignored, Takes::on_off, kColours},
    {"--no-display-prompt", ForeignKind::ignored, Takes::none, "answers do not repeat the prompt"},
    {"-mm", ForeignKind::refused, Takes::one, kNoPictures},
    {"--mmproj", ForeignKind::refused, Takes::one, kNoPictures},
    {"--mmproj-url", ForeignKind::refused, Takes::one, kNoPictures},
    {"--no-mmproj", ForeignKind::ignored, Takes::none, "models do not read pictures yet"},
    {"--log-disable", ForeignKind::same, Takes::none, "--log-level=off"},
    {"--log-disable", ForeignKind::ignored, Takes::none, kNoLog},
    {"-v", ForeignKind::same, Takes::none, "--log-level=debug"},
    {"-v", ForeignKind::ignored, Takes::none, kNoLog},
    {"--verbose", ForeignKind::same, Takes::none, "--log-level=debug"},
    {"--verbose", ForeignKind::ignored, Takes::none, kTimings},
    {"--log-verbose", ForeignKind::same, Takes::none, "--log-level=debug"},
    {"--log-verbose", ForeignKind::ignored, Takes::none, kNoLog},
    {"--reasoning-format", ForeignKind::ignored, Takes::one, kReasoning},
    {"-to", ForeignKind::same, Takes::one, "--read-timeout --stall-timeout"},
    {"--timeout", ForeignKind::same, Takes::one, "--read-timeout --stall-timeout"},
    // vLLM
    {"--max-model-len", ForeignKind::same, Takes::one, "--context"},
    {"--served-model-name", ForeignKind::same, Takes::one, "--name"},
    {"--max-num-seqs", ForeignKind::same, Takes::one, "--max-streams"},
    {"--max-num-batched-tokens", ForeignKind::same, Takes::one, "--batch-tokens"},
    {"--block-size", ForeignKind::same, Takes::one, "--block-tokens"},
    {"--no-enable-prefix-caching", ForeignKind::same, Takes::none, "--no-prefix-cache"},
    {"--ssl-certfile", ForeignKind::same, Takes::one, "--tls-cert"},
    {"--ssl-keyfile", ForeignKind::same, Takes::one, "--tls-key"},
    {"--allowed-origins", ForeignKind::same, Takes::one, "--cors-origin"},
    {"--lora-modules", ForeignKind::same, Takes::one, "--lora"},
    {"--enable-lora", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--enable-prefix-caching", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--enable-chunked-prefill", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--enable-auto-tool-choice", ForeignKind::ignored, Takes::none, kAlwaysOn},
    {"--tool-call-parser", ForeignKind::ignored, Takes::one, "the dialect is that of the chat template"},
    {"--reasoning-parser", ForeignKind::ignored, Takes::one, "the marks are those of the chat template"},
    {"--trust-remote-code", ForeignKind::ignored, Takes::none, "no code of a model is run"},
    {"--enforce-eager", ForeignKind::ignored, Takes::none, "there are no graphs to capture"},
    {"--disable-log-requests", ForeignKind::ignored, Takes::none, "prompts are logged only with --log-prompts"},
    {"--disable-log-stats", ForeignKind::ignored, Takes::none, "figures are at /metrics"},
    {"--gpu-memory-utilization", ForeignKind::refused, Takes::one, "limit memory with --memory, such as 8G"},
    {"--kv-cache-dtype", ForeignKind::refused, Takes::one, "choose the format with --kv-format"},
    {"--dtype", ForeignKind::refused, Takes::one,
     "a model runs in the format of its file; millrace convert changes it"},
    {"--quantization", ForeignKind::refused, Takes::one, "the format is read from the model's files"},
    {"--swap-space", ForeignKind::refused, Takes::one, "give the size in tokens with --swap-tokens"},
    {"--download-dir", ForeignKind::refused, Takes::one, "set the environment variable HF_HUB_CACHE"},
    {"--revision", ForeignKind::refused, Takes::one, "download it with millrace pull --revision"},
    {"-tp", ForeignKind::refused, Takes::one, "there is one device, the CPU"},
    {"--tensor-parallel-size", ForeignKind::refused, Takes::one, "there is one device, the CPU"},
    {"--pipeline-parallel-size", ForeignKind::refused, Takes::one, "there is one device, the CPU"},
    {"--speculative-config", ForeignKind::refused, Takes::one, "choose a drafter with --drafter NAME:key=value"},
    // Ollama
    {"--format", ForeignKind::refused, Takes::one,
     "an answer in JSON is --json-schema FILE; --json prints the result as JSON"},
    {"--keepalive", ForeignKind::ignored, Takes::one,
     "the model is loaded for this command; a server keeps it with keep_alive"},
    {"--nowordwrap", ForeignKind::refused, Takes::none, "lines are broken in a terminal only; pipe the output to cat"},
    {"--think", ForeignKind::refused, Takes::on_off, "in serve a request chooses with its field think"},
    {"--hidethinking", ForeignKind::refused, Takes::none, "in serve a request chooses with its field reasoning_format"},
    // Earlier names of millrace's own.
    {"--n", ForeignKind::refused, Takes::one, "the number of answers is --answers; of tokens, -n"},
};

}  // namespace

std::vector<const ForeignFlag*> foreign_flags_called(std::string_view name) {
  std::vector<const ForeignFlag*> out;
  for (const ForeignFlag& one : kForeignFlags)
    if (one.name == name) out.push_back(&one);
  return out;
}

}  // namespace millrace
