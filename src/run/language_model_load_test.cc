// Loading a model: the reported summary, rejection by the memory budget, and models without a tokenizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/memory.h"
#include "base/memory_accounts.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& name) { return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name; }

Result<std::shared_ptr<const LanguageModel>> load(const std::string& path, LoadOptions options = {}) {
  options.threads = 1;
  return LanguageModel::load(path, options);
}

std::string failure(const std::string& path, const LoadOptions& options, ErrorKind kind) {
  const auto model = load(path, options);
  EXPECT_FALSE(model.ok());
  if (model.ok()) return "";
  EXPECT_EQ(model.error().kind, kind);
  return model.error().message;
}

TEST(LanguageModelLoad, ReportsWhatItLoaded) {
  const auto model = load(golden("llama3/model.gguf"), {.context = 40});
  ASSERT_TRUE(model.ok());
  const ModelInfo& info = (*model)->info();
  const LanguageModel::Parts& parts = (*model)->parts();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.context, parts.model->spec().context);
  EXPECT_EQ(parts.model->context(), 40);
  EXPECT_EQ(info.vocab, parts.model->spec().vocab);
  EXPECT_EQ(info.weight_bytes, parts.model->weight_bytes());
  EXPECT_EQ(info.step_bytes, parts.model->bytes_per_token());
  EXPECT_GT(info.step_bytes, 0);
  int64_t values = 0;
  for (const auto& stored : parts.files->tensors) values += stored.tensor.values();
  EXPECT_EQ(info.parameters, values);
  EXPECT_EQ(count_parameters(*parts.files), values);
  ModelFiles strange = *parts.files;
  strange.tensors.front().tensor.format = nullptr;  // unknown format
  EXPECT_EQ(count_parameters(strange), values - parts.files->tensors.front().tensor.values());
}

TEST(LanguageModelLoad, EmptyPathLoadsTheEmbeddedModel) {
  const auto files = open_model("");
  if (embedded_models().empty()) {
    ASSERT_FALSE(files.ok());
    EXPECT_EQ(files.error().kind, ErrorKind::user);
    EXPECT_EQ(files.error().message, "no model ships in this build; name one with -m PATH");
  } else {
    ASSERT_TRUE(files.ok());
    EXPECT_EQ(files->path, find_embedded_model("")->name);
  }
  EXPECT_FALSE(open_model("/nowhere").ok());
}

TEST(LanguageModelLoad, NamesOfEmbeddedModels) {
  if (embedded_models().empty()) GTEST_SKIP() << "no models in this build";
  std::set<std::string_view> names;
  for (const EmbeddedModel& model : embedded_models()) {
    EXPECT_TRUE(names.insert(model.short_name).second) << model.name;
    names.insert(model.name);
    EXPECT_EQ(find_embedded_model(model.short_name), &model);
    EXPECT_EQ(find_embedded_model(model.name), &model);
    const auto opened = open_model(std::string(model.short_name));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->path, model.name);
  }
  for (const char* name : {"stories", "millrace-stories-6m", "stories-draft", "millrace-stories-1m-draft"})
    EXPECT_TRUE(names.contains(name)) << name;
  const auto unknown = open_model("storeis");
  EXPECT_EQ(unknown.error().kind, ErrorKind::user);
  EXPECT_EQ(unknown.error().message,
            "storeis: no such file, and no built-in model has that name; there are " + embedded_model_names());
  EXPECT_NE(embedded_model_names().find("stories, stories-draft"), std::string::npos);
  EXPECT_EQ(find_embedded_model("./stories"), nullptr);
}

TEST(LanguageModelLoad, BudgetCountsEverything) {
  constexpr int64_t kBudget = int64_t{2} << 30;
  const auto model = load(golden("llama3/model.gguf"), {.memory = kBudget});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const MemoryAccounts& accounts = *(*model)->parts().accounts;
  EXPECT_EQ(accounts.budget(), kBudget);
  int64_t program = 0, total = 0;
  bool tokenizer = false;
  for (const MemoryAccount& one : accounts.list()) {
    total += one.bytes;
    if (one.name == "program") program = one.bytes;
    tokenizer |= one.name == "tokenizer";
  }
  EXPECT_TRUE(tokenizer);
  EXPECT_EQ(total, accounts.total());
  EXPECT_GE(program, int64_t{26} << 20);  // 24 MiB of its own, and 2 MiB for its thread
  EXPECT_LE(program, peak_resident_bytes() + (int64_t{26} << 20));
  const int64_t before = peak_resident_bytes(), now = program_memory();
  EXPECT_GE(now, before + (int64_t{24} << 20));
  EXPECT_LE(now, peak_resident_bytes() + (int64_t{24} << 20));
}

TEST(LanguageModelLoad, RejectedBudgets) {
  const std::string path = golden("llama3/model.gguf");
  EXPECT_EQ(failure(path, {.memory = -1}, ErrorKind::user), "memory: must be 0 or more bytes, got -1");
  const std::string large = failure(path, {.memory = int64_t{1} << 60}, ErrorKind::resource);
  EXPECT_TRUE(large.starts_with("memory: the budget is 1152921.50 TB, ")) << large;
  EXPECT_TRUE(large.ends_with("; lower it")) << large;
  const std::string small = failure(path, {.memory = 1 << 20}, ErrorKind::resource);
  EXPECT_NE(small.find("raise the budget"), std::string::npos) << small;
}

// A budget of all of the machine's memory is allowed, with a warning, as a part of it is in use.
TEST(LanguageModelLoad, ABudgetAboveWhatIsLeftIsWarnedOf) {
  const AvailableMemory total = total_memory();
  if (total.bytes == INT64_MAX || available_memory().bytes >= total.bytes) GTEST_SKIP() << "memory is not limited";
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  const std::string path = golden("llama3/model.gguf");
  ASSERT_TRUE(load(path, {.memory = total.bytes, .warn = warn}).ok());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("memory: the budget is " + format_bytes(total.bytes) + ", ")) << warnings[0];
  EXPECT_TRUE(warnings[0].ends_with(" left now")) << warnings[0];
  EXPECT_TRUE(load(path, {.memory = total.bytes}).ok());
  EXPECT_EQ(failure(path, {.memory = total.bytes + 1, .warn = warn}, ErrorKind::resource),
            "memory: the budget is " + format_bytes(total.bytes + 1) + ", " + total.limit + " has " +
                format_bytes(total.bytes) + "; lower it");
  EXPECT_EQ(warnings.size(), 1u);
}

// Models that share a budget each count their threads and vocabulary, but not the program.
TEST(LanguageModelLoad, SharedBudgets) {
  const auto shared = std::make_shared<MemoryAccounts>(int64_t{2} << 30);
  const auto model = load(golden("llama3/model.gguf"), {.shared_memory = shared, .memory_name = "small"});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const LanguageModel::Parts& parts = (*model)->parts();
  int64_t threads = 0, tokenizer = -1;
  for (const MemoryAccount& one : parts.accounts->list()) {
    EXPECT_NE(one.name, "program");
    if (one.name == "threads") threads = one.bytes;
    if (one.name == "tokenizer") tokenizer = one.bytes;
  }
  EXPECT_EQ(threads, 2 << 20);
  EXPECT_GE(tokenizer, std::ssize(parts.files->tokenizer->tokens) * 256);
  ASSERT_EQ(shared->list().size(), 1u);
  EXPECT_EQ(shared->list()[0].name, "small");
  EXPECT_EQ(shared->total(), parts.accounts->total());
  const auto none = std::make_shared<MemoryAccounts>(1 << 20);
  EXPECT_NE(failure(golden("llama3/model.gguf"), {.shared_memory = none, .memory_name = "small"}, ErrorKind::resource)
                .find("raise the budget"),
            std::string::npos);
}

TEST(LanguageModelLoad, TemplateOverridesTheModels) {
  const auto model =
      load(golden("llama3/model.gguf"),
           {.chat_template =
                "{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}"});
  ASSERT_TRUE(model.ok());
  const TokenizerSpec& spec = (*model)->parts().tokenizer->spec();
  const auto text = [&](const std::optional<TokenId>& id) {
    return id ? spec.tokens[static_cast<size_t>(*id)] : std::string();
  };
  const auto written = (*model)->apply_chat_template(R"([{"role": "user", "content": "hi"}])", true);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(*written, text(spec.bos) + "|" + text(spec.eos) + "|hi>");
  EXPECT_EQ(*(*model)->apply_chat_template(R"({"messages": [{"role": "user", "content": "hi"}]})", false),
            text(spec.bos) + "|" + text(spec.eos) + "|hi");
  const auto wrong = load(golden("llama3/model.gguf"), {.chat_template = "{% if %}"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_TRUE(wrong.error().message.starts_with("chat template: ")) << wrong.error().message;
}

// Without a tokenizer a model accepts ids but no text.
TEST(LanguageModelLoad, WithoutATokenizer) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("language_model_load_" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"}) fs::copy(golden("llama") + "/" + name, folder / name);
  const auto model = load(folder);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto text = (*model)->encode("hello", true, true);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(text.error().message,
            folder.string() + ": no tokenizer in the model's files; give token ids instead of text");
  EXPECT_EQ((*model)->decode({1, 2}, true), "");
  EXPECT_TRUE((*model)->apply_chat_template(R"([{"role": "user", "content": "hi"}])", true).ok());
  EXPECT_EQ((*model)->info().name, folder.filename().string());
  const auto named = load(golden("llama") + "/model.gguf");
  ASSERT_TRUE(named.ok());
  fs::remove_all(folder);
}

TEST(LanguageModelLoad, PackedCachesHaveAPathOrAWarning) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("language_model_cache_" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  const fs::path cache = folder / "cache";
  std::vector<std::string> warnings;
  LoadOptions options;
  options.packed_cache = true;
  options.packed_cache_path = cache;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  ASSERT_TRUE(load(golden("llama3/model.gguf"), options).ok());
  EXPECT_TRUE(fs::exists(cache));
  EXPECT_TRUE(warnings.empty()) << warnings.front();
  fs::copy(golden("llama3/model.gguf"), folder / "model.gguf");
  options.packed_cache_path.clear();
  ASSERT_TRUE(load(folder / "model.gguf", options).ok());
  EXPECT_TRUE(fs::exists(folder / "model.gguf.millrace-packed"));
  if (!embedded_models().empty()) {
    ASSERT_TRUE(load("", options).ok());
    EXPECT_EQ(warnings, (std::vector<std::string>{"packed cache: the built-in model has none"}));
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
