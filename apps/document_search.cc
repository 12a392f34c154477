// millrace document-search: temperature and scale of the document context ape.
#include "compare/document_search.h"

#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kDocumentExamples = R"(Examples:
  millrace document-search -m model.gguf -f texts.txt
  millrace document-search -m model.gguf -f texts.txt --documents 8 --size 256 --T 1,0.9,0.8 --S 1,0.8
The text should be like the documents that the model will read. The output ends with the --use that chooses the values.)";

struct DocumentSearchFlags {
  ModelFlags model;
  std::string file;
  DocumentSearchOptions search;
  bool json = false;
};

nlohmann::ordered_json row_of(const ScoredWeights& one) {
  return {{"T", one.temperature},
          {"S", one.scale},
          {"kl_divergence", one.score.kl},
          {"nll", one.score.nll},
          {"same_top_token", one.score.same_top}};
}

void print_found(const FoundWeights& found) {
  fmt::print("   T      S   divergence   log-loss   same top token\n");
  for (const ScoredWeights& one : found.grid)
    fmt::print("{:4.2f}   {:4.2f} {:12.4f} {:10.4f} {:14.1f} %\n", one.temperature, one.scale, one.score.kl,
               one.score.nll, 100 * one.score.same_top);
  fmt::print("plain {:25} {:10.4f}\n", "", found.plain_nll);
  fmt::print("use them:   --use {}\n", found.grid[found.best].use());
}

Result<int> run_document_search(DocumentSearchFlags flags) {
  MILLRACE_TRY(const std::string text, read_text_file(flags.file));
  flags.model.context = flags.search.cut.longest();
  MILLRACE_TRY(auto model, flags.model.load());
  MILLRACE_TRY(const std::vector<TokenId> tokens, model->encode(text));
  flags.search.threads = flags.model.threads;
  MILLRACE_TRY(const FoundWeights found, search_document_weights(model, tokens, flags.search));
  if (!flags.json) {
    print_found(found);
    return 0;
  }
  nlohmann::ordered_json grid = nlohmann::ordered_json::array();
  for (const ScoredWeights& one : found.grid) grid.push_back(row_of(one));
  print_json_line({{"cases", found.cases},
                   {"plain_nll", found.plain_nll},
                   {"grid", grid},
                   {"neutral", row_of(found.grid[found.neutral])},
                   {"best", row_of(found.grid[found.best])},
                   {"use", found.grid[found.best].use()}});
  return 0;
}

}  // namespace

void add_document_search_command(CLI::App& app) {
  auto flags = std::make_shared<DocumentSearchFlags>();
  CLI::App* command =
      add_command(app, "document-search", "Find how a model should weigh documents that were computed separately",
                  kDocumentExamples, [=] { return run_document_search(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("--documents", flags->search.cut.documents, "Documents of a prompt")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{64}));
  command->add_option("--size", flags->search.cut.size, "Tokens of a document")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  command->add_option("--scored", flags->search.cut.scored, "Tokens behind the documents, which are predicted")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  command->add_option("--prompts", flags->search.cases, "Prompts that the text is cut into, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--T", flags->search.temperatures, "Temperatures, separated by commas")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(0.01, 1.0));
  command->add_option("--S", flags->search.scales, "Scales, separated by commas")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(0.01, 1.0));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
