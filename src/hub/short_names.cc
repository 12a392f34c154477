#include "hub/short_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "hub/file_choice.h"
#include "hub/hub_cache.h"
#include "hub/model_store.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Known {
  const char* name;
  const char* model;
  bool latest = false;
};

constexpr bool kLatest = true;

// Models whose architectures run here (docs/architectures.md), with the tags of Ollama's library.
constexpr Known kKnown[] = {
    {"qwen3:0.6b", "unsloth/Qwen3-0.6B-GGUF:Q4_K_M"},
    {"qwen3:1.7b", "unsloth/Qwen3-1.7B-GGUF:Q4_K_M"},
    {"qwen3:4b", "unsloth/Qwen3-4B-GGUF:Q4_K_M"},
    {"qwen3:8b", "unsloth/Qwen3-8B-GGUF:Q4_K_M", kLatest},
    {"qwen3:14b", "unsloth/Qwen3-14B-GGUF:Q4_K_M"},
    {"qwen3:30b", "unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M"},
    {"qwen3:32b", "unsloth/Qwen3-32B-GGUF:Q4_K_M"},
    {"qwen3-coder:30b", "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", kLatest},
    {"qwen3.5:0.8b", "unsloth/Qwen3.5-0.8B-GGUF:Q4_K_M"},
    {"qwen3.5:9b", "unsloth/Qwen3.5-9B-GGUF:Q4_K_M", kLatest},
    {"qwen2.5:0.5b", "bartowski/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5:1.5b", "bartowski/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5:3b", "bartowski/Qwen2.5-3B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5:7b", "bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M", kLatest},
    {"qwen2.5:14b", "bartowski/Qwen2.5-14B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5:32b", "bartowski/Qwen2.5-32B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5-coder:1.5b", "bartowski/Qwen2.5-Coder-1.5B-Instruct-GGUF:Q4_K_M"},
    {"qwen2.5-coder:7b", "bartowski/Qwen2.5-Coder-7B-Instruct-GGUF:Q4_K_M", kLatest},
    {"llama3.3:70b", "bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M", kLatest},
    {"llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"},
    {"llama3.2:3b", "bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", kLatest},
    {"llama3.1:8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", kLatest},
    {"llama3.1:70b", "bartowski/Meta-Llama-3.1-70B-Instruct-GGUF:Q4_K_M"},
    {"gemma4:e2b", "unsloth/gemma-4-E2B-it-GGUF:Q4_K_M"},
    {"gemma4:e4b", "unsloth/gemma-4-E4B-it-GGUF:Q4_K_M", kLatest},
    {"gemma4:26b", "unsloth/gemma-4-26B-A4B-it-GGUF:Q4_K_M"},
    {"gemma3n:e2b", "unsloth/gemma-3n-E2B-it-GGUF:Q4_K_M"},
    {"gemma3n:e4b", "unsloth/gemma-3n-E4B-it-GGUF:Q4_K_M", kLatest},
    {"gemma3:270m", "unsloth/gemma-3-270m-it-GGUF:Q8_0"},
    {"gemma3:1b", "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"},
    {"gemma3:4b", "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M", kLatest},
    {"gemma3:12b", "ggml-org/gemma-3-12b-it-GGUF:Q4_K_M"},
    {"gemma3:27b", "ggml-org/gemma-3-27b-it-GGUF:Q4_K_M"},
    {"gemma2:2b", "bartowski/gemma-2-2b-it-GGUF:Q4_K_M"},
    {"gemma2:9b", "bartowski/gemma-2-9b-it-GGUF:Q4_K_M", kLatest},
    {"gpt-oss:20b", "ggml-org/gpt-oss-20b-GGUF:MXFP4", kLatest},
    {"gpt-oss:120b", "ggml-org/gpt-oss-120b-GGUF:MXFP4"},
    {"mistral:7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q4_K_M", kLatest},
    {"mistral-nemo:12b", "bartowski/Mistral-Nemo-Instruct-2407-GGUF:Q4_K_M", kLatest},
    {"mixtral:8x7b", "TheBloke/Mixtral-8x7B-Instruct-v0.1-GGUF:Q4_K_M", kLatest},
    {"phi4:14b", "bartowski/phi-4-GGUF:Q4_K_M", kLatest},
    {"phi4-mini:3.8b", "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M", kLatest},
    {"phi3.5:3.8b", "bartowski/Phi-3.5-mini-instruct-GGUF:Q4_K_M", kLatest},
    {"deepseek-r1:1.5b", "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF:Q4_K_M"},
    {"deepseek-r1:7b", "bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF:Q4_K_M"},
    {"deepseek-r1:8b", "unsloth/DeepSeek-R1-0528-Qwen3-8B-GGUF:Q4_K_M", kLatest},
    {"smollm2:135m", "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M"},
    {"smollm2:360m", "bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M"},
    {"smollm2:1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M", kLatest},
    {"tinyllama:1.1b", "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF:Q4_K_M", kLatest},
    {"olmo2:7b", "allenai/OLMo-2-1124-7B-Instruct-GGUF:Q4_K_M", kLatest},
    {"embeddinggemma:300m", "ggml-org/embeddinggemma-300M-GGUF:Q8_0", kLatest},
    {"bge-m3:567m", "gpustack/bge-m3-GGUF:Q8_0", kLatest},
    {"all-minilm:22m", "second-state/All-MiniLM-L6-v2-Embedding-GGUF:Q8_0", kLatest},
};

constexpr size_t kMaxName = 128;                // bytes of a short name
constexpr int64_t kMaxFile = int64_t{1} << 20;  // bytes of a user's file

// The spelling of a short name in the table: lower case, without ":latest".
std::string canonical_short_name(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  if (out.ends_with(":latest")) out.resize(out.size() - 7);
  return out;
}

std::string_view trimmed_entry(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The text between quotes; nullopt: it has none.
std::optional<std::string> quoted_text(std::string_view text) {
  if (text.size() < 2 || (text.front() != '"' && text.front() != '\'') || text.back() != text.front())
    return std::nullopt;
  return std::string(text.substr(1, text.size() - 2));
}

// "q8_0" -> "Q8_0", "fp16" -> "F16"; "": the word names no quantization.
std::string quantization_in(std::string_view word) {
  if (word == "fp16" || word == "f16") return "F16";
  if (word == "bf16" || word == "mxfp4") return upper_case(word);
  const std::string_view digits = word.substr(word.starts_with("iq") ? 2 : word.starts_with('q') ? 1 : word.size());
  return !digits.empty() && digits[0] >= '1' && digits[0] <= '8' ? upper_case(word) : "";
}

std::optional<std::string> model_called(std::string_view name, const std::vector<ShortName>& all) {
  for (const ShortName& one : all)
    if (one.name == name || (one.latest && one.name.substr(0, one.name.find(':')) == name)) return one.model;
  return std::nullopt;
}

}  // namespace

fs::path user_config_folder() {
  if (const std::string folder = environment_text("XDG_CONFIG_HOME"); !folder.empty())
    return fs::path(folder) / "millrace";
  const std::string home = environment_text("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".config" / "millrace";
}

fs::path short_names_file() {
  if (const std::string file = environment_text("MILLRACE_SHORT_NAMES"); !file.empty()) return file;
  const fs::path folder = user_config_folder();
  return folder.empty() ? folder : folder / "short-names.toml";
}

Result<std::vector<ShortName>> parse_short_names(std::string_view text, const std::string& path) {
  std::vector<ShortName> out;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = trimmed_entry(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty() || one.front() == '#') continue;
    const Error bad = Error::user(
        fmt::format("{}:{}: must be \"NAME:TAG\" = \"OWNER/NAME:QUANT\", or a comment that begins with #", path, line));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) return bad;
    const std::string_view key = trimmed_entry(one.substr(0, equals));
    const std::string name = canonical_short_name(quoted_text(key).value_or(std::string(key)));
    const auto value = quoted_text(trimmed_entry(one.substr(equals + 1)));
    if (!value || name.empty() || name.size() > kMaxName || name.find('/') != std::string::npos) return bad;
    const std::string model = canonical_model_name(*value);
    if (!parse_hub_name(model).ok()) return bad;
    out.push_back({.name = name, .model = model, .from_user = true});
  }
  return out;
}

Result<std::vector<ShortName>> short_names() {
  std::vector<ShortName> out;
  const fs::path path = short_names_file();
  if (std::ifstream file(path, std::ios::binary); file) {
    std::string text(static_cast<size_t>(kMaxFile) + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.gcount() > kMaxFile)
      return Error::user(fmt::format("{}: is larger than {} KiB; a line is one name", path.string(), kMaxFile >> 10));
    text.resize(static_cast<size_t>(file.gcount()));
    MILLRACE_TRY(out, parse_short_names(text, path.string()));
  }
  const size_t own = out.size();
  for (const Known& known : kKnown) {
    const auto end = out.begin() + static_cast<std::ptrdiff_t>(own);
    const auto replaced = std::find_if(out.begin(), end, [&](const ShortName& one) { return one.name == known.name; });
    if (replaced == end)
      out.push_back({.name = known.name, .model = known.model, .latest = known.latest});
    else
      replaced->latest = known.latest;
  }
  return out;
}

std::optional<std::string> find_short_name(std::string_view name, const std::vector<ShortName>& all) {
  if (name.empty() || name.size() > kMaxName || name.find('/') != std::string_view::npos) return std::nullopt;
  std::string wanted = canonical_short_name(name);
  if (auto model = model_called(wanted, all)) return model;
  if (wanted.find(':') == std::string::npos) return std::nullopt;
  const size_t dash = wanted.rfind('-');
  const std::string quantization = dash == std::string::npos ? "" : quantization_in(wanted.substr(dash + 1));
  if (!quantization.empty()) wanted.resize(dash);
  for (const std::string_view kind : {"-instruct", "-it", "-chat"})
    if (wanted.ends_with(kind)) wanted.resize(wanted.size() - kind.size());
  auto model = model_called(wanted, all);
  if (model && !quantization.empty()) *model = model->substr(0, model->find(':')) + ":" + quantization;
  return model;
}

Result<std::optional<std::string>> find_short_name(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return std::optional<std::string>();
  MILLRACE_TRY(const std::vector<ShortName> all, short_names());
  return find_short_name(name, all);
}

}  // namespace millrace
