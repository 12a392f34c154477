// millrace centroids: the clusters of the attention pattern routing_transformer, fitted to a model.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/centroid_fit.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kCentroidExamples = R"(Examples:
  millrace centroids -m model.gguf -f texts.txt -o centroids.json
  millrace serve -m model.gguf --use attention=routing_transformer:centroids=centroids.json
The text should be like the texts that the model will read; 16384 tokens are enough.)";

struct CentroidFlags {
  ModelFlags model;
  std::string file, out;
  CentroidFitOptions fit;
  int64_t tokens = 16384;
  bool json = false;
};

Result<int> run_centroids(CentroidFlags flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.fit.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  flags.fit.threads = flags.model.threads;
  MILLRACE_TRY(const RoutingCentroids centroids, fit_routing_centroids(model, tokens, flags.fit));
  MILLRACE_TRY_VOID(write_routing_centroids(flags.out, centroids, model->info().name));
  const std::string use = fmt::format("attention=routing_transformer:centroids={}", flags.out);
  if (flags.json) {
    print_json_line({{"file", flags.out},
                     {"clusters", centroids.clusters},
                     {"layers", centroids.layers.size()},
                     {"tokens", tokens.size()},
                     {"use", use}});
    return 0;
  }
  fmt::print("{} clusters for each KV head of {} layers, from {} tokens\n", centroids.clusters, centroids.layers.size(),
             tokens.size());
  fmt::print("use them:   --use {}\n", use);
  return 0;
}

}  // namespace

void add_centroids_command(CLI::App& app) {
  auto flags = std::make_shared<CentroidFlags>();
  CLI::App* command =
      add_command(app, "centroids", "Fit the clusters of the attention pattern routing_transformer to a model",
                  kCentroidExamples, [=] { return run_centroids(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-o,--output", flags->out, "File to write")->required();
  command->add_option("--clusters", flags->fit.clusters, "Clusters of a head")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{256}));
  command->add_option("-c,--context", flags->fit.context, "Tokens of a window of the text")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{128}, int64_t{1} << 20));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
