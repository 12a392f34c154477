#include "run/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>

#include "base/choose.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "base/ordered_json.h"
#include "base/start_thread.h"
#include "base/work_limits.h"
#include "models/weight_parts_loader.h"
#include "models/weight_source.h"
#include "run/embedded_model.h"
#include "run/plan/offload_plan.h"
#include "run/plan/packed_cache_path.h"
#include "text/template/chat_messages.h"
#include "text/template/chat_template.h"

namespace millrace {

Result<ModelFiles> open_model(const std::string& path) {
  if (const EmbeddedModel* embedded = find_embedded_model(path))
    return open_gguf_image(embedded->image, std::string(embedded->name));
  if (path.empty()) return Error::user("no model ships in this build; name one with -m PATH");
  std::error_code ignored;
  if (path.find_first_of("/.") == std::string::npos && !std::filesystem::exists(path, ignored))
    return Error::user(fmt::format("{}: no such file, and no built-in model has that name; there {}", path,
                                   embedded_models().empty() ? "are none" : "are " + embedded_model_names()));
  return open_model_files(path);
}

int64_t count_parameters(const ModelFiles& files) {
  int64_t count = 0;
  for (const auto& stored : files.tensors)
    if (!is_side_part(files, stored.name)) count += stored_weights(files, stored);
  return count;
}

namespace {

// "", with a warning, where no cache file is possible.
std::string packed_cache_path(const std::string& model_path, const LoadOptions& options) {
  if (!options.packed_cache_path.empty()) return options.packed_cache_path;
  const bool embedded = find_embedded_model(model_path) != nullptr;
  std::string path = embedded ? std::string() : default_packed_cache_path(model_path);
  if (path.empty() && options.warn)
    options.warn(embedded ? "packed cache: the built-in model has none"
                          : "packed cache: no folder to keep it in; name a file");
  return path;
}

// Memory of the program itself, and what is too small for an account of its own: code not yet used, stacks, small heap
// blocks.
constexpr int64_t kProgramBytes = int64_t{24} << 20;
constexpr int64_t kThreadBytes = int64_t{2} << 20;  // a stack, on systems with huge pages everywhere
constexpr int64_t kTokenBytes = 256;                // of a vocabulary, in its tables
constexpr const char* kBudgetAdvice = "raise the budget (--memory)";

using TokenizerTask = std::packaged_task<Result<std::unique_ptr<Tokenizer>>()>;

struct JoinedThread {
  std::thread thread;
  ~JoinedThread() {
    if (thread.joinable()) thread.join();
  }
};

// Maps pages of the files, which the first pass then does not have to, while the tokenizer is being made.
template <typename Made>
void map_until_ready(const ModelFiles& files, const std::future<Made>& tokenizer) {
  constexpr size_t kStep = size_t{8} << 20;
  for (const auto& file : files.files) {
    for (size_t at = 0; at < file->bytes().size(); at += kStep) {
      if (tokenizer.wait_for(std::chrono::seconds(0)) == std::future_status::ready) return;
      file->populate(at, kStep);
    }
  }
}

Result<std::shared_ptr<MemoryAccounts>> open_accounts(const LoadOptions& options) {
  const int64_t threads = options.threads > 0 ? options.threads : available_cores();
  if (options.shared_memory) {  // the owner of the shared budget has counted the program
    auto shared = std::make_shared<MemoryAccounts>(options.shared_memory, options.memory_name);
    MILLRACE_TRY_VOID(shared->take("threads", threads * kThreadBytes, kBudgetAdvice));
    return shared;
  }
  if (options.memory < 0) return Error::user(fmt::format("memory: must be 0 or more bytes, got {}", options.memory));
  auto accounts = std::make_shared<MemoryAccounts>(options.memory);
  if (options.memory > 0) {
    const AvailableMemory total = total_memory(), available = available_memory();
    if (options.memory > total.bytes) {
      return Error::resource(fmt::format("memory: the budget is {}, {} has {}; lower it", format_bytes(options.memory),
                                         total.limit, format_bytes(total.bytes)));
    }
    if (options.memory > available.bytes && options.warn) {
      options.warn(fmt::format("memory: the budget is {}, {} has {} left now", format_bytes(options.memory),
                               available.limit, format_bytes(available.bytes)));
    }
  }
  MILLRACE_TRY_VOID(accounts->take("program", program_memory() + threads * kThreadBytes, kBudgetAdvice));
  return accounts;
}

}  // namespace

int64_t program_memory() { return peak_resident_bytes() + kProgramBytes; }

LanguageModel::LanguageModel() : parts_(std::make_unique<Parts>()) {}
LanguageModel::~LanguageModel() = default;

Result<std::shared_ptr<const LanguageModel>> LanguageModel::load(const std::string& path, const LoadOptions& options) {
  MILLRACE_TRY(Isa isa, select_isa());
  auto loaded = std::shared_ptr<LanguageModel>(new LanguageModel());
  Parts& parts = *loaded->parts_;
  parts.kernels = make_kernel_table(isa);
  MILLRACE_TRY(parts.accounts, open_accounts(options));
  const int64_t before = peak_resident_bytes();
  MILLRACE_TRY(auto files, open_model(path));
  if (!options.chat_template.empty()) {
    if (auto parsed = ChatTemplate::parse(options.chat_template); !parsed.ok())
      return Error{parsed.error().kind, "chat template: " + parsed.error().message};
    files.chat_template = options.chat_template;
  }
  parts.files = std::make_shared<const ModelFiles>(std::move(files));
  // The tokenizer is made in parallel: with weights from a cache it is most of the start.
  const auto making = std::make_shared<TokenizerTask>([files = parts.files]() -> Result<std::unique_ptr<Tokenizer>> {
    if (!files->tokenizer) return std::unique_ptr<Tokenizer>();
    return Tokenizer::create(*files->tokenizer);
  });
  auto tokenizer = making->get_future();
  JoinedThread tokenizer_thread;
  if (auto started = start_thread("tokenizer", [making] { (*making)(); }); started.ok())
    tokenizer_thread.thread = std::move(*started);
  else
    (*making)();
  if (parts.accounts->budget() > 0) {  // first, so that its memory can be told from that of the weights
    tokenizer.wait();
    // The peak does not grow in a process that was larger before.
    const int64_t least = parts.accounts->shares() && parts.files->tokenizer
                              ? static_cast<int64_t>(parts.files->tokenizer->tokens.size()) * kTokenBytes
                              : 0;
    MILLRACE_TRY_VOID(
        parts.accounts->take("tokenizer", std::max(least, peak_resident_bytes() - before), kBudgetAdvice));
  }
  ThreadPool pool(options.threads > 0 ? options.threads : available_cores());
  ModelOptions model_options = {.router = options.router,
                                .weights = options.weights,
                                .context = options.context,
                                .progress = options.progress,
                                .verify_packed_cache = options.verify_packed_cache,
                                .pack_in_background = options.pack_in_background,
                                .warn = options.warn,
                                .accounts = parts.accounts};
  if (options.weights == "auto") {
    MILLRACE_TRY(
        ChosenWeights chosen,
        choose_weights(parts.files, parts.kernels, *parts.accounts,
                       packed_cache_path(path, {.packed_cache_path = options.packed_cache_path}), pool.threads()));
    model_options.weights = std::move(chosen.weights);
    parts.weights_note = std::move(chosen.reason);
  }
  MILLRACE_TRY(const auto source, choose_member("weights", weight_sources(), model_options.weights));
  if (options.packed_cache || source.member.from_file) model_options.packed_cache = packed_cache_path(path, options);
  if (source.member.from_file) model_options.pack_in_background = false;
  auto loaded_model = Model::load(parts.files, parts.kernels, pool, model_options);
  if (model_options.pack_in_background && loaded_model.ok()) map_until_ready(*parts.files, tokenizer);
  auto made = tokenizer.get();
  if (!made.ok())
    return Error{made.error().kind, fmt::format("{}: tokenizer: {}", parts.files->path, made.error().message)};
  parts.tokenizer = std::move(made).value();
  MILLRACE_TRY(auto model, std::move(loaded_model));
  ModelInfo& info = parts.info;
  const ArchSpec& spec = model->spec();
  info.name = !spec.name.empty() ? spec.name : std::filesystem::path(parts.files->path).stem().string();
  info.architecture = spec.arch;
  info.parameters = count_parameters(*parts.files);
  info.weight_bytes = model->weight_bytes();
  info.step_bytes = model->bytes_per_token();
  info.context = spec.context;
  info.vocab = spec.vocab;
  parts.model = std::move(model);
  return std::shared_ptr<const LanguageModel>(std::move(loaded));
}

const ModelInfo& LanguageModel::info() const { return parts_->info; }

Result<std::vector<TokenId>> LanguageModel::encode(std::string_view text, bool add_special, bool parse_special) const {
  if (!parts_->tokenizer) {
    return Error::unsupported(
        fmt::format("{}: no tokenizer in the model's files; give token ids instead of text", parts_->files->path));
  }
  auto tokens = parts_->tokenizer->encode(text, {add_special, parse_special});
  MILLRACE_TRY_VOID(check_work());  // they may be incomplete
  return tokens;
}

std::string LanguageModel::decode(const std::vector<TokenId>& tokens, bool skip_special) const {
  return parts_->tokenizer ? parts_->tokenizer->decode(tokens, skip_special) : std::string();
}

Result<std::vector<float>> LanguageModel::embedding(TokenId token) const {
  const ArchSpec& spec = parts_->model->spec();
  if (token < 0 || token >= spec.vocab)
    return Error::user(fmt::format("token {} is outside the vocabulary of {}", token, spec.vocab));
  std::vector<float> row(static_cast<size_t>(spec.width));
  parts_->model->embedding(token, row.data());
  return row;
}

Result<std::string> LanguageModel::apply_chat_template(std::string_view messages_json,
                                                       bool add_generation_prompt) const {
  auto input = parse_json(messages_json);
  if (input.is_discarded())
    return Error::user(fmt::format("messages: not valid JSON, or nested deeper than {}", kMaxJsonDepth));
  ChatContextOptions options;
  options.add_generation_prompt = add_generation_prompt;
  nlohmann::ordered_json messages = input;
  if (input.is_object()) {
    if (!input.contains("messages")) return Error::user("messages: the object has no \"messages\" array");
    messages = input["messages"];
    if (auto tools = input.find("tools"); tools != input.end()) options.tools = &*tools;
    options.extra = &input;
  }
  if (parts_->tokenizer) {
    const TokenizerSpec& spec = parts_->tokenizer->spec();
    auto text = [&](const std::optional<TokenId>& id) {
      return id && *id >= 0 && *id < parts_->tokenizer->vocab_size() ? spec.tokens[static_cast<size_t>(*id)]
                                                                     : std::string();
    };
    options.bos_token = text(spec.bos);
    options.eos_token = text(spec.eos);
  }
  MILLRACE_TRY(auto context, chat_context(messages, options));
  const std::string& own = parts_->files->chat_template;
  MILLRACE_TRY(auto chat_template, ChatTemplate::parse(own.empty() ? kFallbackChatTemplate : std::string_view(own)));
  const WorkLimits& limits = work_limits();
  return chat_template.render(context, {.now_unix_seconds = {}, .cancelled = limits.cancelled, .until = limits.until});
}

}  // namespace millrace
