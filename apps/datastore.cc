// millrace datastore: writes the file that the drafter rest drafts from.
#include "speculate/datastore.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/memory.h"
#include "base/ordered_json.h"
#include "command.h"
#include "hub_model.h"
#include "input.h"
#include "progress.h"
#include "run/language_model.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

constexpr const char* kDatastoreExamples = R"(Examples:
  millrace datastore notes.txt manual.md -o notes.store     tokens of the built-in model
  millrace datastore *.txt -m model.gguf -o texts.store
  millrace run -m model.gguf --drafter rest:file=texts.store -p "...")";

constexpr size_t kPieceBytes = size_t{1} << 20;  // of text that is tokenized at once

struct DatastoreFlags {
  std::vector<std::string> texts;
  std::string model, out;
  bool json = false;
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Tokenizes files piece by piece, so that only one piece's text is in memory. Pieces end with a line where they can.
class TextReader {
 public:
  TextReader(const Tokenizer& tokenizer, int64_t all_bytes)
      : tokenizer_(tokenizer), all_bytes_(all_bytes), progress_("datastore") {}

  // Adds the text of a file, and an end that no match crosses. Errors: corrupt, user (too much text).
  Result<void> add(const std::string& path) {
    const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
    if (!file) return Error::corrupt(fmt::format("{}: {}", path, std::strerror(errno)));
    std::string held;
    for (;;) {
      const size_t before = held.size();
      held.resize(before + kPieceBytes);
      const size_t got = std::fread(held.data() + before, 1, kPieceBytes, file.get());
      held.resize(before + got);
      read_ += static_cast<int64_t>(got);
      if (got < kPieceBytes) break;
      const size_t line = held.rfind('\n');
      const size_t piece = line == std::string::npos ? held.size() : line + 1;
      MILLRACE_TRY_VOID(encode(std::string_view(held).substr(0, piece)));
      held.erase(0, piece);
    }
    if (std::ferror(file.get())) return Error::corrupt(fmt::format("{}: {}", path, std::strerror(errno)));
    MILLRACE_TRY_VOID(encode(held));
    if (!tokens_.empty() && tokens_.back() != tokenizer_.vocab_size()) tokens_.push_back(tokenizer_.vocab_size());
    return {};
  }

  const std::vector<TokenId>& tokens() const { return tokens_; }
  void finish() { progress_.update(1, "sorting"); }

 private:
  Result<void> encode(std::string_view text) {
    const auto ids = tokenizer_.encode(text, {.add_special = false, .parse_special = false});
    if (std::ssize(tokens_) + std::ssize(ids) >= kMaxDatastoreTokens)
      return Error::user(fmt::format("datastore: more than {} tokens; give less text", kMaxDatastoreTokens));
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    if (all_bytes_ > 0) progress_.update(0.5 * static_cast<double>(read_) / static_cast<double>(all_bytes_));
    return {};
  }

  const Tokenizer& tokenizer_;
  int64_t all_bytes_, read_ = 0;
  std::vector<TokenId> tokens_;
  ProgressBar progress_;
};

Result<int> run_datastore(const DatastoreFlags& flags) {
  MILLRACE_TRY(auto files, open_local_model(flags.model));
  if (!files.tokenizer)
    return Error::unsupported(fmt::format("{}: the model's files contain no tokenizer", files.path));
  MILLRACE_TRY(const auto tokenizer, Tokenizer::create(std::move(*files.tokenizer)));
  int64_t bytes = 0;
  for (const std::string& path : flags.texts) {
    std::error_code failed;
    const auto size = std::filesystem::file_size(path, failed);
    if (failed) return Error::corrupt(fmt::format("{}: {}", path, failed.message()));
    bytes += static_cast<int64_t>(size);
  }
  // A token has a byte at least; those of usual texts have three or more.
  MILLRACE_TRY_VOID(
      check_memory(2 * bytes, fmt::format("the tokens of {} of text", format_bytes(bytes)), "give less text"));
  TextReader reader(*tokenizer, bytes);
  for (const std::string& path : flags.texts) MILLRACE_TRY_VOID(reader.add(path));
  reader.finish();
  const auto& vocabulary = tokenizer->spec().tokens;
  MILLRACE_TRY_VOID(write_datastore(flags.out, std::ssize(vocabulary), vocabulary_hash(vocabulary), reader.tokens()));
  const int64_t tokens = std::ssize(reader.tokens()), written = kDatastoreHeader + 8 * tokens;
  if (flags.json)
    print_json_line({{"file", flags.out}, {"texts", flags.texts.size()}, {"tokens", tokens}, {"bytes", written}});
  else
    fmt::print("{}: {} tokens of {} texts, {}\n", flags.out, tokens, flags.texts.size(), format_bytes(written));
  return 0;
}

}  // namespace

void add_datastore_command(CLI::App& app) {
  auto flags = std::make_shared<DatastoreFlags>();
  CLI::App* command = add_command(app, "datastore", "Write texts into a file to draft from", kDatastoreExamples,
                                  [=] { return run_datastore(*flags); });
  command->add_option("texts", flags->texts, "Text files; a match does not go from one into the next")->required();
  command->add_option("-m,--model", flags->model,
                      "GGUF file, Hugging Face folder or built-in model with the tokenizer; default: the built-in one");
  command->add_option("-o,--output", flags->out, "The datastore to write")->required();
  command->add_flag("--json", flags->json, "Print what was written as JSON");
}

}  // namespace millrace
