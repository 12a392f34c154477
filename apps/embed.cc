// millrace embed: computes embeddings of texts.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/embed_texts.h"
#include "input.h"
#include "model_flags.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr const char* kEmbedExamples = R"(Examples:
  millrace embed -m model.gguf "The cat sat." "A dog ran."       one JSON object per line: index, tokens, embedding
  millrace embed -m model.gguf -f texts.txt --format table       embed each line of a file
  millrace embed -m model.gguf --cosine "The cat sat." "A dog ran."   print pairwise similarities)";

struct EmbedFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  EmbedOptions options;
  std::string file, format = "json";
  bool cosine = false;
};

Result<std::vector<std::string>> read_texts(const EmbedFlags& flags) {
  std::vector<std::string> texts = flags.texts;
  if (!flags.file.empty()) {
    MILLRACE_TRY(const std::string all, read_text_file(flags.file));
    for (size_t at = 0; at < all.size();) {
      const size_t end = std::min(all.find('\n', at), all.size());
      if (end > at) texts.push_back(all.substr(at, end - at));
      at = end + 1;
    }
  }
  if (texts.empty())
    return Error::user(
        "text: missing; give texts as arguments, or a file with one text per line with -f ('-': standard input)");
  return texts;
}

void print_json(size_t index, size_t tokens, const std::vector<float>& values) {
  std::string line = fmt::format("{{\"index\":{},\"tokens\":{},\"embedding\":[", index, tokens);
  for (size_t i = 0; i < values.size(); ++i) fmt::format_to(std::back_inserter(line), "{}{}", i ? "," : "", values[i]);
  fmt::print("{}]}}\n", line);
}

// As many of the first values as the terminal has room for.
void print_row(size_t index, size_t tokens, const std::vector<float>& values, bool first) {
  constexpr size_t kMostShown = 8, kHeadColumns = 22, kValueColumns = 10, kMoreColumns = 4;
  const size_t columns = terminal_columns();
  const size_t room =
      columns == 0 ? kMostShown
                   : (std::max(columns, kHeadColumns + kMoreColumns) - kHeadColumns - kMoreColumns) / kValueColumns;
  const size_t shown = std::min({kMostShown, std::max<size_t>(room, 1), values.size()});
  if (first) fmt::print("{:>5}  {:>6}  {:>6}  first values\n", "text", "tokens", "values");
  std::string row = fmt::format("{:>5}  {:>6}  {:>6} ", index, tokens, values.size());
  for (size_t i = 0; i < shown; ++i) fmt::format_to(std::back_inserter(row), " {:>9.6f}", values[i]);
  fmt::print("{}{}\n", row, values.size() > shown ? " ..." : "");
}

void print_cosines(const std::vector<std::vector<float>>& vectors) {
  for (const auto& a : vectors) {
    std::string row;
    for (const auto& b : vectors) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
      fmt::format_to(std::back_inserter(row), "{:>8.4f}", sum);
    }
    fmt::print("{}\n", row);
  }
}

Result<int> embed(EmbedFlags flags) {
  MILLRACE_TRY(const auto texts, read_texts(flags));
  MILLRACE_TRY(auto model, flags.model.load());
  if (flags.cosine && flags.options.pooling.empty()) {
    MILLRACE_TRY(const Pooling own, model_pooling(*model->parts().files));
    flags.options.pooling = pooling_name(own);
  }
  if (flags.cosine && flags.options.pooling == pooling_name(Pooling::none))
    return Error::user("--cosine: requires one vector per text; choose another --pooling");
  flags.options.threads = flags.model.threads;
  std::vector<std::vector<float>> vectors;
  bool titled = false;
  MILLRACE_TRY_VOID(embed_texts(model, texts, flags.options, [&](size_t text, size_t tokens, std::vector<float> row) {
    if (flags.cosine)
      vectors.push_back(std::move(row));
    else if (flags.format == "json")
      print_json(text, tokens, row);
    else
      print_row(text, tokens, row, !std::exchange(titled, true));
  }));
  if (flags.cosine) print_cosines(vectors);
  return 0;
}

}  // namespace

void add_embed_command(CLI::App& app) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command =
      add_command(app, "embed", "Compute embeddings of texts", kEmbedExamples, [=] { return embed(*flags); });
  flags->model.add_to(command);
  command->add_option("text", flags->texts, "Texts to embed");
  command->add_option("-f,--file", flags->file, "File with one text per line; -: standard input");
  command
      ->add_option("--pooling", flags->options.pooling,
                   "How hidden states are combined into one vector; default: the model's own")
      ->check(CLI::IsMember({"none", "mean", "cls", "last"}));
  command->add_option("--prompt-name", flags->options.prompt_name,
                      "Task whose prefix is put before each text, such as query; default: the model's own");
  command->add_option("--dimensions", flags->options.dimensions, "Use only the first N values, normalized to length 1")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_flag("--raw", flags->options.raw, "Do not normalize embeddings to length 1");
  command->add_flag("--cosine", flags->cosine, "Print a table of pairwise cosine similarities instead");
  command->add_option("--format", flags->format, "json (one object per line) or table")
      ->capture_default_str()
      ->check(CLI::IsMember({"json", "table"}));
  command->add_option("--kv-format", flags->options.kv_format, "Number format of the KV cache")->capture_default_str();
  command->add_option("--batch-tokens", flags->options.batch_tokens, "Maximum number of tokens per step")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
}

}  // namespace millrace
